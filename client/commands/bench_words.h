/* SPDX-License-Identifier: Apache-2.0
 *
 * What all rows of `gpclient bench` share: the options of its command line as words of train's, and as the settings that tell
 * one sweep from another (client/bench/bench_results.h).
 *
 * Threads: the main thread. Test: tests/e2e/bench.sh
 */
#ifndef GP_BENCH_WORDS_H
#define GP_BENCH_WORDS_H

#include "client/job/job.h"
#include "common/options/options.h"

#define GP_BENCH_WORDS 144

struct gp_bench_words {
	char *word[GP_BENCH_WORDS];
	int count;
};

/* `settings` begins with struct gp_job_settings; `given` has as positionals what stands behind --. After a failure, too,
 * gp_bench_words_deinit frees what was made. */
enum gp_status gp_bench_words_make(struct gp_bench_words *w, const struct gp_opt_table *table,
				   const struct gp_job_settings *settings, const struct gp_options_result *given,
				   struct gp_err *err);
void gp_bench_words_deinit(struct gp_bench_words *w);
/* GP_USAGE: behind -- stands something that is no option of train, one that a bench decides for each row, or one of the
 * bench's own table. */
enum gp_status gp_bench_words_check(const struct gp_opt_table *table, const struct gp_options_result *given,
				    struct gp_err *err);
/* {"--batch":"64",...}: everything that makes a difference to the rows' figures, a new reference. */
json_t *gp_bench_words_settings(const struct gp_opt_table *table, const struct gp_job_settings *settings,
				const struct gp_options_result *given);

bool gp_bench_is_one_of(const char *name, const char *const *list);

#endif
