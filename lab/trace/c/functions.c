/* Modules, their functions, and the patching of their entries.
 *
 * Source: the ELF and DWARF (exception header) formats of the System V ABI; that a compiler leaves
 * NOPs at entries and lists them, of GCC's -fpatchable-function-entry. */
#include "recorder.h"
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define STUB_BYTES 32
#define ENTRIES_SECTION "__patchable_function_entries"
#define JUMP_BYTES 5
#define JUMP_CODE 0xe9

struct function *handover_functions;
uint32_t handover_functions_count;
struct module handover_modules[MODULES_MAX];
uint32_t handover_modules_count;

/* --- numbers --- */

/* Leaves word once that there are more functions or modules than numbers. */
static uint32_t refuse_number(void)
{
	static bool is_told;
	if (!is_told)
		handover_log("full=1\n");
	is_told = true;
	return 0;
}

uint32_t handover_number_new(uintptr_t address, uint32_t module)
{
	if (!handover_functions) {
		void *memory = mmap(NULL, (FUNCTIONS_MAX + 1) * sizeof *handover_functions, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (memory == MAP_FAILED)
			return 0;
		handover_functions = memory;
	}
	if (handover_functions_count >= FUNCTIONS_MAX)
		return refuse_number();
	uint32_t number = ++handover_functions_count;
	handover_functions[number] = (struct function){ address, module, handover_modules[module].last_number };
	handover_modules[module].last_number = number;
	return number;
}

/* --- a module's file --- */

struct image {
	const uint8_t *bytes;
	size_t count;
	const Elf64_Shdr *sections;
	size_t sections_count;
};

static bool within(const struct image *image, uint64_t offset, uint64_t bytes)
{
	return offset <= image->count && bytes <= image->count - offset;
}

static bool open_image(const char *path, struct image *image)
{
	memset(image, 0, sizeof *image);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	struct stat data;
	void *memory = MAP_FAILED;
	if (!fstat(fd, &data) && data.st_size > (off_t)sizeof(Elf64_Ehdr))
		memory = mmap(NULL, data.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	if (memory == MAP_FAILED)
		return false;
	image->bytes = memory;
	image->count = data.st_size;
	const Elf64_Ehdr *header = memory;
	if (!memcmp(header->e_ident, ELFMAG, SELFMAG) && header->e_ident[EI_CLASS] == ELFCLASS64 &&
	    header->e_shentsize == sizeof(Elf64_Shdr) &&
	    within(image, header->e_shoff, (uint64_t)header->e_shnum * sizeof(Elf64_Shdr))) {
		image->sections = (const Elf64_Shdr *)(image->bytes + header->e_shoff);
		image->sections_count = header->e_shnum;
	}
	return true;
}

static void close_image(struct image *image)
{
	if (image->bytes)
		munmap((void *)image->bytes, image->count);
}

static const char *text_at(const struct image *image, const Elf64_Shdr *texts, uint64_t at)
{
	if (at >= texts->sh_size || !within(image, texts->sh_offset, texts->sh_size))
		return "";
	const char *text = (const char *)image->bytes + texts->sh_offset + at;
	return memchr(text, 0, texts->sh_size - at) ? text : "";
}

static const char *section_name(const struct image *image, const Elf64_Shdr *section)
{
	const Elf64_Ehdr *header = (const Elf64_Ehdr *)image->bytes;
	if (header->e_shstrndx >= image->sections_count)
		return "";
	return text_at(image, &image->sections[header->e_shstrndx], section->sh_name);
}

/* --- names, for filters --- */

struct symbol {
	uintptr_t address;
	const char *name;
};

struct symbols {
	uint32_t module;
	struct image image;
	struct symbol *all;
	size_t count;
};
static struct symbols symbols = { .module = UINT32_MAX };

static int by_address(const void *a, const void *b)
{
	const struct symbol *first = a, *second = b;
	return first->address < second->address ? -1 : first->address > second->address;
}

/* Of one module at a time: filters ask for one after the other. */
static void load_symbols(uint32_t module)
{
	if (symbols.module == module)
		return;
	close_image(&symbols.image);
	free(symbols.all);
	memset(&symbols, 0, sizeof symbols);
	symbols.module = module;
	if (!open_image(handover_modules[module].path, &symbols.image))
		return;
	const struct image *image = &symbols.image;
	const Elf64_Shdr *table = NULL;
	for (size_t at = 0; at < image->sections_count; at++) {
		const Elf64_Shdr *section = &image->sections[at];
		if (section->sh_type == SHT_SYMTAB || (section->sh_type == SHT_DYNSYM && !table))
			table = section;
	}
	if (!table || table->sh_link >= image->sections_count || !within(image, table->sh_offset, table->sh_size))
		return;
	size_t count = table->sh_size / sizeof(Elf64_Sym);
	symbols.all = malloc(count * sizeof *symbols.all);
	if (!symbols.all)
		return;
	const Elf64_Sym *from = (const Elf64_Sym *)(image->bytes + table->sh_offset);
	for (size_t at = 0; at < count; at++) {
		int type = ELF64_ST_TYPE(from[at].st_info);
		if ((type != STT_FUNC && type != STT_GNU_IFUNC) || from[at].st_shndx == SHN_UNDEF)
			continue;
		struct symbol *symbol = &symbols.all[symbols.count++];
		symbol->address = handover_modules[module].bias + from[at].st_value;
		symbol->name = text_at(image, &image->sections[table->sh_link], from[at].st_name);
	}
	qsort(symbols.all, symbols.count, sizeof *symbols.all, by_address);
}

static const char *symbol_at(uint32_t module, uintptr_t address)
{
	load_symbols(module);
	size_t low = 0, high = symbols.count;
	while (low < high) {
		size_t middle = (low + high) / 2;
		if (symbols.all[middle].address <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low ? symbols.all[low - 1].name : NULL;
}

static bool is_wanted_by(const char *name)
{
	const struct config *config = &handover_config;
	return (!config->include[0] || handover_matches(config->include, name));
}

/* Whether a function is to be recorded: by its name as the linker knows it, as the programmer does,
 * and that without what it takes. */
static bool is_wanted(uint32_t module, uintptr_t address)
{
	const struct config *config = &handover_config;
	if (!config->include[0] && !config->exclude[0])
		return true;
	char unnamed[600];
	const char *symbol = symbol_at(module, address);
	if (!symbol || !*symbol) {
		const char *slash = strrchr(handover_modules[module].path, '/');
		snprintf(unnamed, sizeof unnamed, "%s+0x%lx", slash ? slash + 1 : handover_modules[module].path,
			 address - handover_modules[module].bias);
		symbol = unnamed;
	}
	bool is_included = is_wanted_by(symbol);
	bool is_excluded = config->exclude[0] && handover_matches(config->exclude, symbol);
	if (!strncmp(symbol, "_Z", 2)) {
		typedef char *demangle(const char *, char *, size_t *, int *);
		static demangle *real;
		if (!real)
			real = (demangle *)dlsym(RTLD_DEFAULT, "__cxa_demangle");
		int status = 0;
		char *plain = real ? real(symbol, NULL, NULL, &status) : NULL;
		if (plain) {
			is_included |= is_wanted_by(plain);
			is_excluded |= config->exclude[0] && handover_matches(config->exclude, plain);
			/* Without its arguments: up to the parenthesis that the last one closes. */
			size_t at = strlen(plain), depth = 0;
			while (at > 0) {
				at--;
				depth += plain[at] == ')';
				if (plain[at] == '(' && --depth == 0)
					break;
				if (!depth && plain[at] != ' ' && !strchr("const&volatile", plain[at]))
					break;
			}
			if (plain[at] == '(' && at) {
				plain[at] = 0;
				is_included |= is_wanted_by(plain);
				is_excluded |= config->exclude[0] && handover_matches(config->exclude, plain);
			}
			free(plain);
		}
	}
	return is_included && !is_excluded;
}

/* --- modules --- */

static void read_build_id(struct module *module, uintptr_t notes, size_t bytes)
{
	const uint8_t *at = (const uint8_t *)notes, *end = at + bytes;
	while (at + sizeof(Elf64_Nhdr) <= end) {
		const Elf64_Nhdr *note = (const Elf64_Nhdr *)at;
		const uint8_t *name = at + sizeof *note, *value = name + ((note->n_namesz + 3) & ~3u);
		if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 && !memcmp(name, "GNU", 4) &&
		    note->n_descsz <= sizeof module->build_id) {
			memcpy(module->build_id, value, note->n_descsz);
			module->build_id_bytes = note->n_descsz;
		}
		at = value + ((note->n_descsz + 3) & ~3u);
	}
}

/* The path of a loaded module's file; false for the kernel's. */
static bool read_path(struct module *module, const char *name)
{
	char whole[PATH_MAX];
	if (name && name[0]) {
		if (name[0] != '/' && !strchr(name, '/'))
			return false;
		snprintf(module->path, sizeof module->path, "%s", realpath(name, whole) ? whole : name);
		return true;
	}
	ssize_t bytes = readlink("/proc/self/exe", module->path, sizeof module->path - 1);
	if (bytes <= 0 && realpath((const char *)getauxval(AT_EXECFN), whole))
		bytes = snprintf(module->path, sizeof module->path, "%s", whole);
	module->path[bytes > 0 && (size_t)bytes < sizeof module->path ? bytes : 0] = 0;
	return true;
}

/* The path of a loaded module's file, and what tells it from a later file there. */
static bool read_file(struct module *module, const char *name)
{
	struct stat data;
	if (!module->path[0] && !read_path(module, name))
		return false;
	if (!module->file.inode && !stat(module->path, &data))
		module->file = (struct file_id){ data.st_dev, data.st_ino, data.st_size, data.st_ctim };
	return true;
}

/* Whether a known module is the one that is now loaded from `name`. Without build IDs, its file
 * tells; while it is loaded, only its path: the file may be replaced or removed. */
static bool is_same_file(const struct module *known, struct module *loaded, const char *name)
{
	if (known->build_id_bytes || loaded->build_id_bytes)
		return known->build_id_bytes == loaded->build_id_bytes &&
		       !memcmp(known->build_id, loaded->build_id, known->build_id_bytes);
	return read_file(loaded, name) && !strcmp(known->path, loaded->path) &&
	       (known->is_loaded ||
		(known->file.inode && !memcmp(&known->file, &loaded->file, sizeof known->file)));
}

/* An entry, and the stub to which its jump leads. */
struct jump {
	uintptr_t at;
	const uint8_t *stub;
	uint32_t number;
};

/* False if the module was loaded again since its jumps were written. Its code must be mapped. */
static bool has_jumps(const struct module *module)
{
	return !module->jumps_count || *(const uint8_t *)module->jumps[0].at == JUMP_CODE;
}

static int meet(struct dl_phdr_info *info, size_t size, void *count)
{
	(void)size, (void)count;
	struct module new = { .bias = info->dlpi_addr, .start = UINTPTR_MAX };
	for (size_t at = 0; at < info->dlpi_phnum; at++) {
		const Elf64_Phdr *part = &info->dlpi_phdr[at];
		uintptr_t start = new.bias + part->p_vaddr;
		if (part->p_type == PT_LOAD && start < new.start)
			new.start = start;
		if (part->p_type == PT_LOAD && start + part->p_memsz > new.end)
			new.end = start + part->p_memsz;
		if (part->p_type == PT_GNU_EH_FRAME)
			new.eh_frame_hdr = start;
		if (part->p_type == PT_NOTE)
			read_build_id(&new, start, part->p_memsz);
	}
	for (uint32_t at = 0; at < handover_modules_count; at++) {
		struct module *old = &handover_modules[at];
		if (old->start == new.start && old->bias == new.bias && is_same_file(old, &new, info->dlpi_name)) {
			old->is_found = true;
			/* The search that follows an unload may come after the next load. */
			old->is_patched &= has_jumps(old);
			return 0;
		}
	}
	if (!read_file(&new, info->dlpi_name))
		return 0;
	if (handover_modules_count == MODULES_MAX)
		return refuse_number();
	new.is_found = true;
	handover_modules[handover_modules_count] = new;
	handover_file_module(handover_modules_count++);
	return 0;
}

/* Finds modules that were loaded since the last call, and forgets the functions of those that were
 * unloaded. */
static void find_modules(void)
{
	for (uint32_t at = 0; at < handover_modules_count; at++)
		handover_modules[at].is_found = false;
	dl_iterate_phdr(meet, NULL);
	for (uint32_t at = 0; at < handover_modules_count; at++) {
		struct module *module = &handover_modules[at];
		if (module->is_loaded && !module->is_found) {
			handover_functions_forget(module->start, module->end);
			module->is_patched = false;
			module->was_unloaded = true;
		}
		module->is_loaded = module->is_found;
	}
}

static uint32_t module_of(uintptr_t address)
{
	for (int again = 0; again < 2; again++) {
		for (uint32_t at = handover_modules_count; at-- > 0;)
			if (handover_modules[at].is_loaded && handover_modules[at].start <= address &&
			    address < handover_modules[at].end)
				return at;
		find_modules();
	}
	return MODULES_MAX;
}

uint64_t handover_function_introduce(uintptr_t address)
{
	uint32_t module = module_of(address);
	if (module == MODULES_MAX || !is_wanted(module, address))
		return 0;
	/* A function of a module that is loaded again has its number. */
	uint32_t number = handover_modules[module].was_unloaded ? handover_modules[module].last_number : 0;
	while (number && handover_functions[number].address != address)
		number = handover_functions[number].earlier;
	if (!number && (number = handover_number_new(address, module)))
		handover_file_function(number);
	return (uint64_t)number << 2;
}

/* --- patching --- */

struct found {
	uint32_t listed, patched, unwanted, short_ones, odd;
	/* Files that cannot be read. */
	uint32_t unread;
};

/* Bytes of the NOP at `at`, 0 if it is none: as compilers write them. */
static size_t nop_bytes(const uint8_t *at)
{
	size_t prefixes = 0;
	while (at[prefixes] == 0x66 || at[prefixes] == 0x2e)
		prefixes++;
	const uint8_t *code = at + prefixes;
	if (code[0] == 0x90)
		return prefixes + 1;
	if (code[0] != 0x0f || code[1] != 0x1f)
		return 0;
	uint8_t mode = code[2] >> 6, base = code[2] & 7;
	size_t bytes = 3 + (base == 4 && mode != 3);
	return prefixes + bytes + (mode == 1 ? 1 : mode == 2 ? 4 : 0);
}

static size_t endbr_bytes(const uint8_t *at)
{
	return at[0] == 0xf3 && at[1] == 0x0f && at[2] == 0x1e && at[3] == 0xfa ? 4 : 0;
}

/* The first function that begins at `address` or later, and the last that begins before, as the
 * table for unwinding lists them; 0 for none, and UINTPTR_MAX in both if there is no such table. */
static void neighbours(const struct module *module, uintptr_t address, uintptr_t *before, uintptr_t *next)
{
	const uint8_t *header = (const uint8_t *)module->eh_frame_hdr;
	*before = *next = UINTPTR_MAX;
	/* Version 1, a count of 4 bytes, and pairs of 4 bytes each, relative to this header. */
	if (!header || header[0] != 1 || header[2] != 0x03 || header[3] != 0x3b || (header[1] & 0x0f) != 0x0b)
		return;
	uint32_t count;
	memcpy(&count, header + 8, 4);
	const int32_t *pairs = (const int32_t *)(header + 12);
	size_t low = 0, high = count;
	while (low < high) {
		size_t middle = (low + high) / 2;
		if ((uintptr_t)header + pairs[2 * middle] < address)
			low = middle + 1;
		else
			high = middle;
	}
	*before = low ? (uintptr_t)header + pairs[2 * low - 2] : 0;
	*next = low < count ? (uintptr_t)header + pairs[2 * low] : 0;
}

/* Where a function's own NOPs begin: usually where they are listed. With
 * -fpatchable-function-entry=N,M the first M lie before the function, and a call there would not be
 * executed, or worse, be entered in its middle. */
static uintptr_t own_nops(const struct module *module, uintptr_t listed)
{
	uintptr_t before, next;
	neighbours(module, listed, &before, &next);
	if (next == UINTPTR_MAX || next == listed || !next || next - listed > 255)
		return listed;
	if (listed - before == 4 && endbr_bytes((const uint8_t *)before))
		return listed;
	uintptr_t at = listed;
	while (at < next) {
		size_t bytes = nop_bytes((const uint8_t *)at);
		if (!bytes)
			return listed; /* another function's code lies between */
		at += bytes;
	}
	return at == next ? next + endbr_bytes((const uint8_t *)next) : 0;
}

/* Memory that a jump of 32 bits reaches from all of the module. */
static uint8_t *near_memory(const struct module *module, size_t bytes)
{
	const uintptr_t step = 1 << 16, reach = (uintptr_t)3 << 29;
	for (uintptr_t away = 0; away < reach; away += away < 64 * step ? step : 64 * step) {
		uintptr_t below = (module->start - bytes - away) & ~(step - 1), above = (module->end + away + step) & ~(step - 1);
		const uintptr_t hints[2] = { below, above };
		for (size_t at = 0; at < 2; at++) {
			if (at == 0 && (module->start < bytes + away || below < step))
				continue;
			/* Right behind the program its heap grows. */
			if (at == 1 && away < ((uintptr_t)1 << 28))
				continue;
			void *memory = mmap((void *)hints[at], bytes, PROT_READ | PROT_WRITE,
					    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
			if (memory == (void *)hints[at])
				return memory;
			if (memory != MAP_FAILED)
				munmap(memory, bytes);
		}
	}
	return NULL;
}

static bool write_code(int memory, uintptr_t at, const uint8_t *bytes, size_t count)
{
	if (memory >= 0)
		return pwrite(memory, bytes, count, at) == (ssize_t)count;
	memcpy((void *)at, bytes, count);
	return true;
}

static void write_stub(uint8_t *stub, uintptr_t body, uint32_t code, const uint8_t *pointer)
{
	memset(stub, 0xcc, STUB_BYTES);
	/* push %r11; lea body(%rip), %r11; push $code; jmp *handover_enter */
	stub[0] = 0x41, stub[1] = 0x53;
	stub[2] = 0x4c, stub[3] = 0x8d, stub[4] = 0x1d;
	handover_put32(stub + 5, (int64_t)body - (int64_t)(stub + 9));
	stub[9] = 0x68;
	handover_put32(stub + 10, code);
	stub[14] = 0xff, stub[15] = 0x25;
	handover_put32(stub + 16, pointer - (stub + 20));
}

/* Writes the stub of an entry, and adds its jump to those of the module. */
static void prepare_entry(uint32_t index, uintptr_t listed, uint8_t **stub, const uint8_t *pointer, struct found *found)
{
	struct module *module = &handover_modules[index];
	found->listed++;
	uintptr_t at = own_nops(module, listed);
	if (!at) {
		found->odd++;
		return;
	}
	at += endbr_bytes((const uint8_t *)at);
	size_t room = 0, bytes;
	while (room < JUMP_BYTES && (bytes = nop_bytes((const uint8_t *)at + room)))
		room += bytes;
	if (room < JUMP_BYTES) {
		bool is_jump = *(const uint8_t *)at == JUMP_CODE;
		found->short_ones += !is_jump;
		return;
	}
	if (!is_wanted(index, at)) {
		found->unwanted++;
		return;
	}
	uint32_t number = handover_number_new(at, index);
	if (!number) {
		found->odd++;
		return;
	}
	write_stub(*stub, at + room, number << 2, pointer);
	module->jumps[module->jumps_count++] = (struct jump){ at, *stub, number };
	*stub += STUB_BYTES;
}

/* Makes a module's code writable, or not. */
static bool protect(const struct image *image, const struct module *module, int more)
{
	const Elf64_Ehdr *header = (const Elf64_Ehdr *)image->bytes;
	if (!within(image, header->e_phoff, (uint64_t)header->e_phnum * sizeof(Elf64_Phdr)))
		return false;
	const Elf64_Phdr *parts = (const Elf64_Phdr *)(image->bytes + header->e_phoff);
	bool done = true;
	for (size_t at = 0; at < header->e_phnum; at++) {
		if (parts[at].p_type != PT_LOAD || !(parts[at].p_flags & PF_X))
			continue;
		uintptr_t start = (module->bias + parts[at].p_vaddr) & ~(uintptr_t)(PAGE - 1);
		uintptr_t end = module->bias + parts[at].p_vaddr + parts[at].p_memsz;
		int usual = PROT_EXEC | (parts[at].p_flags & PF_R ? PROT_READ : 0) |
			    (parts[at].p_flags & PF_W ? PROT_WRITE : 0);
		done &= !mprotect((void *)start, end - start, usual | more);
	}
	return done;
}

/* Writes the jumps to stubs that are executable already: a call of one of these functions, even by
 * this recorder, may come before the last jump is written. Keeps those that could be written. */
static void write_jumps(const struct image *image, struct module *module, struct found *found)
{
	int memory = -1;
	size_t written_count = 0;
	bool is_writable = protect(image, module, PROT_WRITE);
	if (!is_writable) {
		memory = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
		is_writable = memory >= 0;
	}
	for (size_t at = 0; at < module->jumps_count; at++) {
		const struct jump *jump = &module->jumps[at];
		uint8_t code[JUMP_BYTES] = { JUMP_CODE };
		handover_put32(code + 1, (int64_t)jump->stub - (int64_t)(jump->at + JUMP_BYTES));
		if (!is_writable || !write_code(memory, jump->at, code, sizeof code)) {
			found->odd++;
			continue;
		}
		handover_file_function(jump->number);
		module->jumps[written_count++] = *jump;
	}
	module->jumps_count = written_count;
	found->patched += written_count;
	if (memory >= 0)
		close(memory);
	/* Also if only some parts have become writable. */
	protect(image, module, 0);
}

/* Writes the stubs of a module. They stay if it is unloaded, and have their jumps again if it is
 * loaded again. */
static void prepare_module(uint32_t index, const struct image *image, struct found *found)
{
	struct module *module = &handover_modules[index];
	size_t count = 0;
	for (size_t at = 0; at < image->sections_count; at++)
		if (!strcmp(section_name(image, &image->sections[at]), ENTRIES_SECTION))
			count += image->sections[at].sh_size / 8;
	size_t bytes = ((count * STUB_BYTES + 16) + PAGE - 1) & ~(size_t)(PAGE - 1);
	size_t jumps_bytes = count * sizeof(struct jump);
	uint8_t *stubs = count ? near_memory(module, bytes) : NULL;
	void *jumps = stubs ? mmap(NULL, jumps_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) :
			      MAP_FAILED;
	if (jumps != MAP_FAILED) {
		module->jumps = jumps;
		uint8_t *stub = stubs + 16;
		void (*enter)(void) = handover_enter;
		memcpy(stubs, &enter, sizeof enter);
		for (size_t at = 0; at < image->sections_count; at++) {
			const Elf64_Shdr *section = &image->sections[at];
			if (strcmp(section_name(image, section), ENTRIES_SECTION) || !(section->sh_flags & SHF_ALLOC))
				continue;
			/* As the loader has relocated them. */
			const uintptr_t *entries = (const uintptr_t *)(module->bias + section->sh_addr);
			for (size_t entry = 0; entry < section->sh_size / 8; entry++)
				if (entries[entry] > module->start && entries[entry] < module->end)
					prepare_entry(index, entries[entry], &stub, stubs, found);
		}
		if (mprotect(stubs, bytes, PROT_READ | PROT_EXEC)) {
			found->odd += module->jumps_count;
			module->jumps_count = 0;
		}
	} else if (count) {
		found->listed += count;
		found->odd += count;
		if (stubs)
			munmap(stubs, bytes);
	}
}

static void patch_module(uint32_t index, struct found *found)
{
	struct module *module = &handover_modules[index];
	struct image image;
	if (!open_image(module->path, &image)) {
		found->unread++;
		return;
	}
	if (!module->jumps)
		prepare_module(index, &image, found);
	if (module->jumps_count)
		write_jumps(&image, module, found);
	close_image(&image);
}

void handover_patch_new_modules(void)
{
	struct found found = { 0 };
	find_modules();
	for (uint32_t at = 0; at < handover_modules_count; at++) {
		struct module *module = &handover_modules[at];
		if (!module->is_loaded || module->is_patched)
			continue;
		module->is_patched = true;
		patch_module(at, &found);
	}
	handover_log("patched %d listed=%u patched=%u unwanted=%u short=%u odd=%u unread=%u\n", getpid(), found.listed,
		     found.patched, found.unwanted, found.short_ones, found.odd, found.unread);
}

void handover_functions_more(void)
{
	int error = errno;
	if (handover_lock()) {
		handover_patch_new_modules();
		handover_unlock();
	}
	errno = error;
}

void handover_forget_unloaded(void)
{
	int error = errno;
	if (handover_lock()) {
		find_modules();
		handover_unlock();
	}
	errno = error;
}
