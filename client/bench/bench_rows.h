/* SPDX-License-Identifier: Apache-2.0
 *
 * The rows of `gpclient bench`: every link with every cut, number of chunks and codec of the user's lists, and the
 * order in which they run. What a row is called in tables, results files and messages is its key. Not here: how a row
 * is run (client/commands/bench_child.h), and what it has come to (bench_results.h).
 *
 * Threads: any; pure. Test: tests/unit/test_bench_rows.c
 */
#ifndef GP_BENCH_ROWS_H
#define GP_BENCH_ROWS_H

#include "client/plan/plan_link.h"
#include "common/codec/codec.h"

enum { GP_BENCH_LINKS = 16, GP_BENCH_CUTS = 16, GP_BENCH_CHUNKINGS = 16, GP_BENCH_CODECS = 64 };

#define GP_BENCH_LINK_TEXT 48
#define GP_BENCH_CUT_TEXT  24
#define GP_BENCH_AS_IS     "as-is" /* a link that nothing simulates */

struct gp_bench_link {
	char text[GP_BENCH_LINK_TEXT]; /* as the user wrote it */
	bool as_is;
	struct gp_plan_link shape;
};

struct gp_bench_sweep {
	int links, cuts, chunkings, codecs;
	struct gp_bench_link link[GP_BENCH_LINKS];
	char cut[GP_BENCH_CUTS][GP_BENCH_CUT_TEXT];
	int chunks[GP_BENCH_CHUNKINGS];
	char codec[GP_BENCH_CODECS][GP_CODEC_SPEC_MAX];
};

/* What tells rows of one sweep apart. */
struct gp_bench_key {
	char link[GP_BENCH_LINK_TEXT], cut[GP_BENCH_CUT_TEXT], codec[GP_CODEC_SPEC_MAX];
	int chunks;
};

/* A place in the lists of a sweep. */
struct gp_bench_place {
	int link, cut, chunking, codec;
};

/* The lists of the flags --links, --cut, --chunks and --codecs; GP_USAGE names the flag and the item that cannot be,
 * or is given twice. A link is "as-is" or RATE[/DELAY[/DOWN]]: what plan_link.h reads, with '/' for ','. */
enum gp_status gp_bench_read_links(struct gp_bench_sweep *s, const char *list, struct gp_err *err);
enum gp_status gp_bench_read_cuts(struct gp_bench_sweep *s, const char *list, struct gp_err *err);
enum gp_status gp_bench_read_chunks(struct gp_bench_sweep *s, const char *list, int64_t batch, struct gp_err *err);
enum gp_status gp_bench_read_codecs(struct gp_bench_sweep *s, const char *list, struct gp_err *err);

int gp_bench_count(const struct gp_bench_sweep *s);
/* Rows in the order of the table, 0 to count - 1: codecs next to each other, then chunks, cuts, links. */
struct gp_bench_place gp_bench_place_of(const struct gp_bench_sweep *s, int row);
void gp_bench_key_of(const struct gp_bench_sweep *s, int row, struct gp_bench_key *out);
bool gp_bench_key_same(const struct gp_bench_key *a, const struct gp_bench_key *b);
/* The row that is the turn'th of a round, from 1: every other round goes backwards, so that a machine that becomes
 * slower or faster favours no row. */
int gp_bench_turn(int rows, int round, int turn);
/* "raw in 8 chunks, cut 1:-1, 100mbit/20ms"; returns text. */
#define GP_BENCH_KEY_TEXT 400
const char *gp_bench_key_text(const struct gp_bench_key *k, char text[GP_BENCH_KEY_TEXT]);

#endif
