/* One function, called in a row: cycles of the time-stamp counter a call, for the function that a
 * tracer sees and for one that none does, in turn, the median of many rounds. How it is traced is
 * the compiler's options' and the tracer's affair: every tracer gets this very text. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define ROUNDS 20
#define APART __attribute__((noinline))
#define UNTRACED __attribute__((noinline, no_instrument_function, patchable_function_entry(0)))

APART int work(int x)
{
	__asm__ volatile("");
	return x + 1;
}

UNTRACED static int bare(int x)
{
	__asm__ volatile("");
	return x + 1;
}

UNTRACED static uint64_t ticks(void)
{
	uint32_t low, high;
	__asm__ volatile("lfence\n\trdtsc" : "=a"(low), "=d"(high));
	return (uint64_t)high << 32 | low;
}

UNTRACED static int in_order(const void *a, const void *b)
{
	double first = *(const double *)a, second = *(const double *)b;
	return (first > second) - (first < second);
}

UNTRACED int main(int count, char **words)
{
	long calls = count > 1 ? atol(words[1]) / ROUNDS : 1000;
	double plain[ROUNDS], traced[ROUNDS];
	int x = work(0);
	for (int round = 0; round < ROUNDS; round++) {
		uint64_t begin = ticks();
		for (long call = 0; call < calls; call++)
			x = bare(x);
		uint64_t middle = ticks();
		for (long call = 0; call < calls; call++)
			x = work(x);
		plain[round] = (double)(middle - begin) / calls;
		traced[round] = (double)(ticks() - middle) / calls;
	}
	qsort(plain, ROUNDS, sizeof *plain, in_order);
	qsort(traced, ROUNDS, sizeof *traced, in_order);
	printf("CYCLES %.2f %.2f\n", plain[ROUNDS / 2], traced[ROUNDS / 2]);
	return x == 1 + 2 * ROUNDS * calls ? 0 : 1;
}
