/* SPDX-License-Identifier: Apache-2.0
 *
 * A plugin for qemu's user mode: counts the instructions of the emulated processor that a program runs, by function. Prints
 * "COUNT FUNCTION" lines at the end. Counting costs an addition for each block of instructions that is run. For programs of
 * one thread: several would lose counts of each other.
 *
 *     qemu-aarch64 -plugin build/dev/tests/libinstructions.so,out=FILE PROGRAM ...
 *
 * Debian has qemu without the header of its plugins, so that what is used of it is declared here: version 1 of the interface
 * that docs/devel/tcg-plugins of qemu describes. Used by tests/arm64/instructions.sh.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define EXPORT         __attribute__((visibility("default")))
#define MOST_FUNCTIONS 65536 /* a power of two */

/* --- qemu's ----------------------------------------------------------------------------------------------------- */

struct qemu_plugin_tb;
struct qemu_plugin_insn;
enum qemu_plugin_op { QEMU_PLUGIN_INLINE_ADD_U64 };

size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb, size_t index);
const char *qemu_plugin_insn_symbol(const struct qemu_plugin_insn *insn);
void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id, void (*cb)(uint64_t id, struct qemu_plugin_tb *tb));
void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *tb, enum qemu_plugin_op op, void *at,
					      uint64_t amount);
void qemu_plugin_register_atexit_cb(uint64_t id, void (*cb)(uint64_t id, void *arg), void *arg);

EXPORT int qemu_plugin_install(uint64_t id, const void *info, int argc, char **argv);
extern EXPORT int qemu_plugin_version;
int qemu_plugin_version = 1;

/* --- counting --------------------------------------------------------------------------------------------------- */

/* By the address of its name, which qemu keeps; the last one is for functions without a name, and for too many of them. */
static struct {
	const char *name;
	uint64_t count;
} functions[MOST_FUNCTIONS + 1];

static FILE *out;

static uint64_t *counter_of(const char *name)
{
	uint64_t at = ((uintptr_t)name >> 2) * 0x9e3779b97f4a7c15u >> 48;
	for (int tries = 0; name && tries < MOST_FUNCTIONS; tries++, at = (at + 1) % MOST_FUNCTIONS) {
		if (!functions[at].name)
			functions[at].name = name;
		if (functions[at].name == name)
			return &functions[at].count;
	}
	return &functions[MOST_FUNCTIONS].count;
}

/* A block may go from one function to the next only where it ends: its first instruction tells. */
static void translated(uint64_t id, struct qemu_plugin_tb *tb)
{
	(void)id;
	uint64_t *const counter = counter_of(qemu_plugin_insn_symbol(qemu_plugin_tb_get_insn(tb, 0)));
	qemu_plugin_register_vcpu_tb_exec_inline(tb, QEMU_PLUGIN_INLINE_ADD_U64, counter, qemu_plugin_tb_n_insns(tb));
}

static void ended(uint64_t id, void *arg)
{
	(void)id;
	(void)arg;
	functions[MOST_FUNCTIONS].name = "-";
	for (int i = 0; i <= MOST_FUNCTIONS; i++)
		if (functions[i].count)
			fprintf(out, "%llu %s\n", (unsigned long long)functions[i].count, functions[i].name);
	fclose(out);
}

int qemu_plugin_install(uint64_t id, const void *info, int argc, char **argv)
{
	(void)info;
	if (argc != 1 || strncmp(argv[0], "out=", 4) != 0 || !(out = fopen(argv[0] + 4, "w"))) {
		fprintf(stderr, "instructions: write -plugin PLUGIN,out=FILE, with a file that can be written\n");
		return -1;
	}
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	qemu_plugin_register_atexit_cb(id, ended, NULL);
	return 0;
}
