//! Compilation of the programs to be traced.

use handover_trace::record::PROBE_HEADER_SOURCE;
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

/// Compiled program and its folder.
#[derive(Debug)]
pub struct Built {
    pub path: PathBuf,
    pub folder: TempDir,
}

/// Compiles a source file; `None`, with a message, if there is no compiler for it.
pub fn build(source: &str, name: &str, flags: &[&str]) -> Option<Built> {
    build_by(if name.ends_with(".cc") { "c++" } else { "cc" }, source, name, flags)
}

/// Compiles a source file with the given compiler, like [`build`].
pub fn build_by(compiler: &str, source: &str, name: &str, flags: &[&str]) -> Option<Built> {
    let folder = tempfile::tempdir().unwrap();
    let (file, path) = (folder.path().join(name), folder.path().join("program"));
    std::fs::write(&file, source).unwrap();
    std::fs::write(folder.path().join("handover_probe.h"), PROBE_HEADER_SOURCE).unwrap();
    let mut compile = Command::new(compiler);
    compile.arg("-o").arg(&path).arg(&file).args(flags);
    match compile.output() {
        Ok(output) if output.status.success() => Some(Built { path, folder }),
        Ok(output) => panic!("{flags:?}: {}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => {
            println!("skipped: tracing {name}: there is no {compiler}: {error}");
            None
        }
    }
}

/// Returns the command that runs the program untraced.
pub fn program(built: &Built) -> Command {
    Command::new(&built.path)
}

/// Program with forty threads one after another, a fork, and a fork that executes another program.
pub const PROCESSES: &str = r#"
    #include <pthread.h>
    #include <stdlib.h>
    #include <sys/wait.h>
    #include <unistd.h>
    __attribute__((noinline)) int work(int x) { __asm__ volatile(""); return x + 1; }
    static void *thread(void *unused) { for (int i = 0; i < 100; i++) work(i); return unused; }
    int main(int count, char **words) {
        int status;
        if (count > 1) { for (int i = 0; i < 7; i++) work(i); return 0; }
        for (int i = 0; i < 40; i++) {
            pthread_t one;
            if (pthread_create(&one, NULL, thread, NULL) || pthread_join(one, NULL)) return 1;
        }
        pid_t child = fork();
        if (!child) { for (int i = 0; i < 11; i++) work(i); _exit(0); }
        if (waitpid(child, &status, 0) != child || status) return 2;
        child = fork();
        if (!child) { execl("/proc/self/exe", words[0], "again", NULL); _exit(3); }
        return waitpid(child, &status, 0) != child || status;
    }
"#;

/// Program whose calls end in every way other than by returning.
pub const UNWINDING: &str = r#"
    #include <csetjmp>
    #include <execinfo.h>
    #include <pthread.h>
    #include <stdexcept>
    #define APART __attribute__((noinline))
    struct Guard { ~Guard() { __asm__ volatile(""); } };
    APART int thrower(int x) { if (x >= 0) throw std::runtime_error("x"); return 1; }
    APART int middle(int x) { Guard guard; int r = thrower(x) + 1; __asm__ volatile("" : "+r"(r)); return r; }
    APART int catcher(int x) { try { return middle(x) + 2; } catch (std::exception &) { return 7; } }
    APART int again(int x) {
        try { middle(x); } catch (...) { try { throw; } catch (std::exception &) { return 1; } }
        return 0;
    }
    static jmp_buf place;
    APART void jumper(int n) { if (n == 0) longjmp(place, 1); jumper(n - 1); __asm__ volatile(""); }
    APART int jumps() { if (setjmp(place) == 0) jumper(5); return 3; }
    APART void *ends(void *value) { pthread_exit(value); }
    APART void *runs(void *value) { void *got = ends(value); __asm__ volatile("" : "+r"(got)); return got; }
    APART int twice(int x) { __asm__ volatile(""); return x * 2; }
    APART int tail(int x) { return twice(x + 1); }
    APART int odd(int x);
    APART int even(int x) { __asm__ volatile(""); return x ? odd(x - 1) : thrower(x); }
    APART int odd(int x) { __asm__ volatile(""); return x ? even(x - 1) : 9; }
    APART int parity(int x) { try { return even(x) + 1; } catch (std::exception &) { return 1; } }
    APART int passed(int n) { __asm__ volatile(""); if (n == 0) longjmp(place, 1); return passed(n - 1); }
    APART int leaps() { if (setjmp(place) == 0) passed(3); return tail(3); }
    int main() {
        int sum = 0;
        for (int i = 0; i < 1000; i++) sum += catcher(i) + again(i);
        for (int i = 0; i < 100; i++) sum += jumps();
        for (int i = 0; i < 100; i++) if (parity(11) != 10 || parity(10) != 1 || leaps() != 8) return 4;
        pthread_t one;
        void *got = 0;
        int five = 5;
        if (pthread_create(&one, 0, runs, &five) || pthread_join(one, &got) || got != &five) return 1;
        void *frames[64];
        if (backtrace(frames, 64) < 3) return 2;
        return sum == 8300 && tail(3) == 8 ? 0 : 3;
    }
"#;

/// Program that checks every kind of argument and result, in threads, so that blocks begin at
/// various calls.
pub const VALUES: &str = r#"
    #include <pthread.h>
    #include <stdarg.h>
    #include <string.h>
    #define APART __attribute__((noinline))
    typedef struct { double a, b; } pair;
    typedef struct { long a[5]; } large;
    typedef float wide __attribute__((vector_size(32)));
    APART double many(double a, float b, int c, long d, char e, int f, int g, int h, long i, double j) {
        return a + b + c + d + e + f + g + h + i + j;
    }
    APART long variadic(int count, ...) {
        va_list all; va_start(all, count);
        double sum = 0;
        for (int i = 0; i < count; i++) sum += i % 2 ? va_arg(all, double) : va_arg(all, int);
        va_end(all);
        return (long)sum;
    }
    APART pair two(double a, double b) { pair it = { b, a }; return it; }
    APART large big(long first) { large it = { { first, 2, 3, 4, 5 } }; return it; }
    APART long double extended(long double a, long double b) { return a * b; }
    APART __int128 wider(__int128 a) { return a + 1; }
    APART _Complex long double complex_of(long double a, long double b) { return a + b * 1.0iL; }
    APART void vectors(const wide *a, const wide *b, wide *to) { *to = *a + *b; }
    #ifdef __AVX__
    APART wide by_value(wide a, wide b, wide c) { return a * b + c; }
    #endif
    APART static int deep(int n) { return n ? deep(n - 1) + 1 : 0; }
    static void *check(void *unused) {
        for (int i = 0; i < 3000; i++) {
            if (many(1, 2, 3, 4, 5, 6, 7, 8, i, 10) != 46 + i) return "many";
            if (variadic(4, 1, 2.0, 3, (double)i) != 6 + i) return "variadic";
            pair p = two(i, 2);
            if (p.a != 2 || p.b != i) return "two";
            if (big(i).a[0] != i || big(i).a[4] != 5) return "big";
            if (extended(i, 2.0L) != 2.0L * i) return "extended";
            if (wider((__int128)i << 70) != ((__int128)i << 70) + 1) return "wider";
            if (__imag__ complex_of(i, 3) != 3) return "complex";
            wide a = { i, 1, 2, 3, 4, 5, 6, 7 }, b = a, c;
            vectors(&a, &b, &c);
            if (c[0] != 2.0f * i || c[7] != 14) return "vectors";
    #ifdef __AVX__
            c = by_value(a, b, c);
            if (c[7] != 63 || c[4] != 24) return "by value";
    #endif
        }
        return deep(3000) == 3000 ? unused : "deep";
    }
    int main(void) {
        pthread_t all[2];
        for (int i = 0; i < 2; i++) if (pthread_create(&all[i], NULL, check, NULL)) return 2;
        int wrong = check(NULL) != NULL;
        for (int i = 0; i < 2; i++) { void *it; pthread_join(all[i], &it); wrong |= it != NULL; }
        return wrong;
    }
"#;

/// Program with its own stacks, a signal stack, and a timer that interrupts everything.
pub const STACKS: &str = r#"
    #include <signal.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/time.h>
    #include <ucontext.h>
    #define APART __attribute__((noinline))
    static ucontext_t mine, theirs;
    static volatile int handled;
    APART int leaf(int x) { __asm__ volatile(""); return x + 1; }
    APART static void turn(void) { swapcontext(&theirs, &mine); }
    APART static void other(void) { for (;;) { leaf(1); turn(); leaf(2); } }
    APART static void step(void) { leaf(3); swapcontext(&mine, &theirs); leaf(4); }
    APART static void handler(int signal) { handled = leaf(handled) + (signal == 0); }
    int main(void) {
        static char stack[1 << 16], alternate[1 << 16];
        stack_t it = { .ss_sp = alternate, .ss_size = sizeof alternate };
        sigaltstack(&it, NULL);
        struct sigaction action;
        memset(&action, 0, sizeof action);
        action.sa_handler = handler;
        action.sa_flags = SA_RESTART;
        sigaction(SIGALRM, &action, NULL);
        action.sa_flags |= SA_ONSTACK;
        sigaction(SIGUSR1, &action, NULL);
        struct itimerval often = { { 0, 200 }, { 0, 200 } };
        setitimer(ITIMER_REAL, &often, NULL);
        getcontext(&theirs);
        theirs.uc_stack.ss_sp = stack;
        theirs.uc_stack.ss_size = sizeof stack;
        makecontext(&theirs, other, 0);
        int sum = 0;
        for (int i = 0; i < 20000; i++) {
            if (i % 100 == 0) { step(); raise(SIGUSR1); }
            sum += leaf(i) - i;
        }
        while (handled < 210) sum += leaf(0) - 1;
        return sum == 20000 ? 0 : 1;
    }
"#;

/// Program with probes of each kind, one of which is left out.
pub const PROBES: &str = r#"
    #include "handover_probe.h"
    static inline __attribute__((noinline)) int work(int n) {
        HANDOVER_SPAN("work", n);
        HANDOVER_PROBE("work.mark", n, n + 1);
        HANDOVER_PROBE("work.hidden");
        HANDOVER_SPAN_BEGIN("inner");
        n++;
        HANDOVER_SPAN_END("inner");
        return n;
    }
    int main(void) { return work(3) - 4; }
"#;
