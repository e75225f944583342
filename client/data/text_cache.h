/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokens of texts in a file, so that the next run does not tokenize the same
 * texts once more: --token-cache DIR. A folder and not a file of a --data key,
 * because a run has two splits, and because --data is a part of what a run and
 * its checkpoints are, which a cache must not be.
 *
 * A file belongs to one list of texts, one tokenizer and one limit: its key is a
 * hash of all texts with their lengths, of what decides the tokenizer's ids, and
 * of the limit. So a table that changed, another column or another `limit=` is
 * another key, and times and names of files decide nothing. The file's name
 * begins with the key; what it holds is compared with all of it.
 *
 * The file, little-endian:
 *
 *   0  "GPTOKENS"   8 bytes
 *   8  version      u32: 1
 *  12  limit        u32: most tokens of a row
 *  16  key          16 bytes: XXH3-128
 *  32  rows         u32
 *  36  vocabulary   u32: ids are below it
 *  40  tokens       u64: of all rows
 *  48  checksum     u64: XXH3-64 of everything else in the file
 *  56  cut          u32: rows that had more than `limit` tokens
 *  60  zero         u32
 *  64  count        u32 for each row: its tokens, 1 to `limit`
 *      first        u32 for each row: tokens before those of segment 1, 0 to count
 *      token        u32 for each token
 *
 * Nothing of a file is used that was not compared with these bounds. One that is
 * damaged, foreign or of another version is told and made anew. It is written
 * under another name first, and renamed when it is whole.
 *
 * Threads: one for a file; any number of processes may share a folder.
 * Tests: tests/unit/test_text_cache.c; fuzz: fuzz_text_cache.c
 */
#ifndef GP_TEXT_CACHE_H
#define GP_TEXT_CACHE_H

#include "client/data/text_rows.h"
#include "client/text/text_file.h"

struct gp_text_key {
	uint8_t hash[16];
	uint32_t rows, vocabulary;
	int most;
};

/* The key of these texts. */
struct gp_text_key gp_text_key_of(const struct gp_tokenizer *t, const struct gp_table *table, int most);
/* Where they are kept in that folder. */
enum gp_status gp_text_cache_path(const char *folder, const struct gp_text_key *key, char path[GP_TEXT_PATH],
				  struct gp_err *err);
/* GP_INVALID: it is not what the key wants, and why; *out is then as it was. */
enum gp_status gp_text_cache_read(const char *path, const struct gp_text_key *key, struct gp_text_rows *out,
				  struct gp_err *err);
enum gp_status gp_text_cache_write(const char *path, const struct gp_text_key *key, const struct gp_text_rows *rows,
				   struct gp_err *err);

/* Puts the checksum into a file of at least 64 bytes: also for a fuzzer, which would not find it. */
void gp_text_cache_seal(uint8_t *file, size_t bytes);

/* As gp_text_rows_make, but from the cache of how->cache where it has them; else they are put there. A cache that cannot be
 * read or written is a warning. */
enum gp_status gp_text_rows_get(const struct gp_tokenizer *t, const char *path, const struct gp_table *table, int most,
				const struct gp_text_making *how, struct gp_text_rows *out, struct gp_err *err);

#endif
