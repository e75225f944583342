/* SPDX-License-Identifier: Apache-2.0
 *
 * Sessions that come and go leave nothing behind: the memory of the process
 * after the last of them is what it was after the hundredth. Every session
 * trains a step. Usage: test_session_memory [SESSIONS]; without it 1000, or 150 under a sanitizer.
 */
#include "tests/unit/server_rig.h"

#include <malloc.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "common/base/threads.h"
#include "tests/sanitized.h"

enum { SETTLED = 100, LARGE_BLOCK_BYTES = 256 << 10 };

static int sessions = IS_SANITIZED ? 150 : 1000;

static uint64_t resident_bytes(void)
{
	unsigned long long pages = 0;
	FILE *statm = fopen("/proc/self/statm", "r");
	assert_non_null(statm);
	assert_int_equal(fscanf(statm, "%*u %llu", &pages), 1);
	fclose(statm);
	return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void run_session(const struct fixture *f)
{
	struct raw_peer c;
	until_ready(&c, f);
	put_step(&c, f);
	get_answers(&c, 2, 0);
	put_commit(&c, 0, 0.1f);
	expect_control(&c, GPSPLIT__CONTROL__BODY_COMMITTED);
	client_close(&c);
}

static void a_thousand_sessions_leave_no_memory_behind(void **state)
{
	const struct fixture *f = *state;
	uint64_t settled = 0;
	for (int i = 0; i < sessions; i++) {
		run_session(f);
		if (i + 1 == SETTLED)
			settled = resident_bytes();
	}
	const uint64_t last = resident_bytes();
	print_message("resident after %d sessions: %.1f MiB, after %d: %.1f MiB\n", SETTLED, (double)settled / (1 << 20),
		      sessions, (double)last / (1 << 20));
	if (!IS_SANITIZED) /* a sanitizer keeps what was freed for a while */
		assert_true((double)last <= 1.05 * (double)settled);
}

int main(int argc, char **argv)
{
	if (argc > 1)
		sessions = atoi(argv[1]);
	struct gp_err err;
	if (gp_log_configure("all=error", &err) != GP_OK)
		return 1;
	mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES); /* as gpserverd does */
	gp_threads_prepare(argv);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_thousand_sessions_leave_no_memory_behind, setup, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
