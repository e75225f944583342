/* SPDX-License-Identifier: Apache-2.0
 *
 * See text_cache.h. Tests: tests/unit/test_text_cache.c; fuzz: fuzz_text_cache.c
 */
#include "client/data/text_cache.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#define XXH_STATIC_LINKING_ONLY /* a hash state on the stack */
#include <xxhash.h>

#include "common/base/durable.h"
#include "common/base/little_endian.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/new_file.h"

enum { VERSION = 1, AT_VERSION = 8, AT_LIMIT = 12, AT_KEY = 16, AT_ROWS = 32, AT_VOCABULARY = 36, AT_TOKENS = 40 };
enum { AT_SUM = 48, AT_CUT = 56, AT_ZERO = 60, HEAD = 64, SUM_BYTES = 8 };

#define MAGIC     "GPTOKENS"
#define BYTES_MAX ((size_t)16 << 30)

/* --- keys ------------------------------------------------------------------------------------------------------- */

static void hash_text(XXH3_state_t *x, struct gp_text t)
{
	uint8_t length[9];
	length[0] = t.at != NULL; /* that there is none is another thing than that it is empty */
	gp_put_le(length + 1, t.len, 8);
	XXH3_128bits_update(x, length, sizeof length);
	if (t.len)
		XXH3_128bits_update(x, t.at, t.len);
}

struct gp_text_key gp_text_key_of(const struct gp_tokenizer *t, const struct gp_table *table, int most)
{
	struct gp_text_key key = {
		.rows = table->rows, .vocabulary = (uint32_t)gp_tokenizer_vocabulary(t), .most = most};
	uint8_t head[24];
	XXH3_state_t x;
	XXH128_canonical_t canonical;
	XXH3_INITSTATE(&x);
	XXH3_128bits_reset(&x);
	gp_put_le(head, gp_tokenizer_hash(t), 8);
	gp_put_le(head + 8, (uint64_t)most, 8);
	gp_put_le(head + 16, table->rows, 8);
	XXH3_128bits_update(&x, head, sizeof head);
	for (uint32_t i = 0; i < table->rows; i++) {
		hash_text(&x, table->row[i].text);
		hash_text(&x, table->row[i].pair);
	}
	XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&x));
	memcpy(key.hash, canonical.digest, sizeof key.hash);
	return key;
}

enum gp_status gp_text_cache_path(const char *folder, const struct gp_text_key *key, char path[GP_TEXT_PATH],
				  struct gp_err *err)
{
	char name[2 * sizeof key->hash + sizeof ".tokens"], *at = name;
	for (size_t i = 0; i < sizeof key->hash; i++)
		at += snprintf(at, 3, "%02x", key->hash[i]);
	snprintf(at, sizeof ".tokens", ".tokens");
	return gp_text_path(folder, name, path, err);
}

/* --- reading ---------------------------------------------------------------------------------------------------- */

static uint64_t checksum(const uint8_t *file, size_t bytes)
{
	XXH3_state_t x;
	XXH3_INITSTATE(&x);
	XXH3_64bits_reset(&x);
	XXH3_64bits_update(&x, file, AT_SUM);
	XXH3_64bits_update(&x, file + AT_SUM + SUM_BYTES, bytes - AT_SUM - SUM_BYTES);
	return XXH3_64bits_digest(&x);
}

static enum gp_status check_head(const uint8_t *file, size_t bytes, const struct gp_text_key *key, struct gp_err *err)
{
	if (bytes < HEAD || memcmp(file, MAGIC, 8) != 0)
		GP_FAIL(err, GP_INVALID, "it is no cache of tokens");
	if (gp_get_le(file + AT_VERSION, 4) != VERSION)
		GP_FAIL(err, GP_INVALID, "another version of gpclient wrote it");
	if (memcmp(file + AT_KEY, key->hash, sizeof key->hash) != 0 || gp_get_le(file + AT_ROWS, 4) != key->rows ||
	    gp_get_le(file + AT_LIMIT, 4) != (uint64_t)key->most ||
	    gp_get_le(file + AT_VOCABULARY, 4) != key->vocabulary)
		GP_FAIL(err, GP_INVALID, "it is of other texts, of another tokenizer or of another limit");
	const uint64_t tokens = gp_get_le(file + AT_TOKENS, 8), rest = bytes - HEAD;
	if (tokens > rest / 4 || (uint64_t)key->rows * 8 + tokens * 4 != rest)
		GP_FAIL(err, GP_INVALID, "it was cut off, or bytes were added: %zu of them", bytes);
	if (gp_get_le(file + AT_SUM, 8) != checksum(file, bytes))
		GP_FAIL(err, GP_INVALID, "its checksum does not fit: it is damaged");
	return GP_OK;
}

/* What a checksum cannot say: that whoever wrote the file meant what is possible. */
static enum gp_status check_rows(const uint8_t *file, const struct gp_text_key *key, struct gp_err *err)
{
	const uint8_t *count = file + HEAD, *first = count + (size_t)key->rows * 4;
	const uint64_t tokens = gp_get_le(file + AT_TOKENS, 8);
	uint64_t sum = 0;
	for (uint32_t i = 0; i < key->rows; i++) {
		const uint64_t n = gp_get_le(count + (size_t)i * 4, 4);
		if (n < 1 || n > (uint64_t)key->most || gp_get_le(first + (size_t)i * 4, 4) > n)
			GP_FAIL(err, GP_INVALID, "a row of it has an impossible number of tokens");
		sum += n;
	}
	if (sum != tokens || gp_get_le(file + AT_CUT, 4) > key->rows || gp_get_le(file + AT_ZERO, 4) != 0)
		GP_FAIL(err, GP_INVALID, "its numbers do not fit each other");
	const uint8_t *token = first + (size_t)key->rows * 4;
	for (uint64_t i = 0; i < tokens; i++)
		if (gp_get_le(token + i * 4, 4) >= key->vocabulary)
			GP_FAIL(err, GP_INVALID, "a token of it is beyond the vocabulary");
	return GP_OK;
}

static enum gp_status read_rows(const uint8_t *file, size_t bytes, const struct gp_text_key *key,
				struct gp_text_rows *out, struct gp_err *err)
{
	GP_TRY(check_head(file, bytes, key, err));
	GP_TRY(check_rows(file, key, err));
	return gp_text_rows_restore(file + HEAD, key->rows, (uint32_t)gp_get_le(file + AT_CUT, 4), out, err);
}

/* Most bytes of a file with that key: no more are read, whatever lies there. */
static size_t most_bytes(const struct gp_text_key *key)
{
	const uint64_t most = HEAD + (uint64_t)key->rows * (8 + 4 * (uint64_t)key->most);
	return most < BYTES_MAX ? (size_t)most : BYTES_MAX;
}

enum gp_status gp_text_cache_read(const char *path, const struct gp_text_key *key, struct gp_text_rows *out,
				  struct gp_err *err)
{
	char *file;
	size_t bytes;
	GP_TRY(gp_text_file_read(path, most_bytes(key), &file, &bytes, err));
	const enum gp_status status = read_rows((const uint8_t *)file, bytes, key, out, err);
	gp_free(file);
	return status == GP_OK ? GP_OK : gp_err_prefix(err, "%s", path);
}

/* --- writing ---------------------------------------------------------------------------------------------------- */

static uint64_t count_tokens(const struct gp_text_rows *rows, uint32_t count)
{
	uint64_t tokens = 0;
	int n;
	for (uint32_t i = 0; i < count; i++) {
		gp_text_rows_at(rows, i, &n);
		tokens += (uint64_t)n;
	}
	return tokens;
}

static void fill_head(uint8_t *file, const struct gp_text_key *key, uint64_t tokens, uint32_t cut)
{
	memcpy(file, MAGIC, 8);
	gp_put_le(file + AT_VERSION, VERSION, 4);
	gp_put_le(file + AT_LIMIT, (uint64_t)key->most, 4);
	memcpy(file + AT_KEY, key->hash, sizeof key->hash);
	gp_put_le(file + AT_ROWS, key->rows, 4);
	gp_put_le(file + AT_VOCABULARY, key->vocabulary, 4);
	gp_put_le(file + AT_TOKENS, tokens, 8);
	gp_put_le(file + AT_CUT, cut, 4);
	gp_put_le(file + AT_ZERO, 0, 4);
}

static void fill_rows(uint8_t *file, const struct gp_text_rows *rows, uint32_t count)
{
	uint8_t *counts = file + HEAD, *first = counts + (size_t)count * 4, *token = first + (size_t)count * 4;
	for (uint32_t i = 0; i < count; i++) {
		int n;
		const int32_t *row = gp_text_rows_at(rows, i, &n);
		gp_put_le(counts + (size_t)i * 4, (uint64_t)n, 4);
		gp_put_le(first + (size_t)i * 4, (uint64_t)gp_text_rows_first_segment(rows, i), 4);
		for (int k = 0; k < n; k++, token += 4)
			gp_put_le(token, (uint64_t)(uint32_t)row[k], 4);
	}
}

/* Under a name of its own beside the file's, which it then gets. */
static enum gp_status write_whole(const char *path, const uint8_t *file, size_t bytes, struct gp_err *err)
{
	struct gp_new_file f;
	GP_TRY(gp_new_file_begin(&f, path, err));
	return gp_new_file_end(&f, gp_write_all(f.fd, file, bytes, f.temp, err), err);
}

void gp_text_cache_seal(uint8_t *file, size_t bytes)
{
	gp_put_le(file + AT_SUM, checksum(file, bytes), 8);
}

enum gp_status gp_text_cache_write(const char *path, const struct gp_text_key *key, const struct gp_text_rows *rows,
				   struct gp_err *err)
{
	const uint64_t tokens = count_tokens(rows, key->rows);
	const size_t bytes = HEAD + (size_t)key->rows * 8 + (size_t)tokens * 4;
	void *file;
	GP_TRY(gp_alloc_array(&file, bytes, 1, err));
	fill_head(file, key, tokens, rows->cut);
	fill_rows(file, rows, key->rows);
	gp_text_cache_seal(file, bytes);
	const enum gp_status status = write_whole(path, file, bytes, err);
	gp_free(file);
	return status;
}

/* --- both ------------------------------------------------------------------------------------------------------- */

static bool take_from_cache(const char *path, const char *table, const struct gp_text_key *key,
			    struct gp_text_rows *out)
{
	struct gp_err why;
	if (!gp_text_file_there(path))
		return false;
	if (gp_text_cache_read(path, key, out, &why) == GP_OK) {
		gp_log(data, GP_LOG_INFO, "%s: the tokens of %u texts are those of %s", table, key->rows, path);
		return true;
	}
	gp_log(data, GP_LOG_WARN, "--token-cache: %s; it is made anew", why.text);
	return false;
}

static void keep_in_cache(const char *folder, const char *path, const char *table, const struct gp_text_key *key,
			  const struct gp_text_rows *rows)
{
	struct gp_err why;
	if (gp_make_folder(folder, &why) == GP_OK && gp_text_cache_write(path, key, rows, &why) == GP_OK)
		gp_log(data, GP_LOG_INFO, "%s: the tokens of %u texts are kept in %s", table, key->rows, path);
	else
		gp_log(data, GP_LOG_WARN, "--token-cache: %s; the run goes on without", why.text);
}

enum gp_status gp_text_rows_get(const struct gp_tokenizer *t, const char *path, const struct gp_table *table, int most,
				const struct gp_text_making *how, struct gp_text_rows *out, struct gp_err *err)
{
	char file[GP_TEXT_PATH];
	if (!how->cache)
		return gp_text_rows_make(t, path, table, most, how, out, err);
	const struct gp_text_key key = gp_text_key_of(t, table, most);
	GP_TRY(gp_text_cache_path(how->cache, &key, file, err));
	if (take_from_cache(file, path, &key, out))
		return GP_OK;
	GP_TRY(gp_text_rows_make(t, path, table, most, how, out, err));
	keep_in_cache(how->cache, file, path, &key, out);
	return GP_OK;
}
