/* SPDX-License-Identifier: Apache-2.0
 *
 * Property: any file is refused with one line of error, or gives rows within the
 * bounds of its key: as many as were asked for, none empty, none longer than the
 * limit, no token beyond the vocabulary (client/data/text_cache.h).
 * Input: one byte, the number of rows (7 bits) and whether what no fuzzer finds by
 * itself (the head and the checksum) is put in; then the file.
 */
#include <string.h>

#include "tests/fuzz/memory_file.h"

#include "client/data/text_cache.h"
#include "common/base/little_endian.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HEAD = 64, SIZE_MAX_HERE = 4096, LIMIT = 9, VOCABULARY = 300 };

static void put_head(uint8_t *file, size_t bytes, const struct gp_text_key *key)
{
	memcpy(file, "GPTOKENS", 8);
	gp_put_le(file + 8, 1, 4);
	gp_put_le(file + 12, LIMIT, 4);
	memcpy(file + 16, key->hash, sizeof key->hash);
	gp_put_le(file + 32, key->rows, 4);
	gp_put_le(file + 36, VOCABULARY, 4);
	gp_text_cache_seal(file, bytes);
}

static void check_rows(const struct gp_text_rows *rows, const struct gp_text_key *key)
{
	gp_require(rows->cut <= key->rows && rows->longest <= LIMIT);
	for (uint32_t i = 0; i < key->rows; i++) {
		int count;
		const int32_t *row = gp_text_rows_at(rows, i, &count);
		const int first = gp_text_rows_first_segment(rows, i);
		gp_require(count >= 1 && count <= LIMIT && first >= 0 && first <= count);
		for (int k = 0; k < count; k++)
			gp_require(row[k] >= 0 && row[k] < VOCABULARY);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t file[SIZE_MAX_HERE];
	struct gp_text_rows rows = {0};
	struct gp_err err = {0};
	char path[32];
	if (size < 1 || size - 1 > sizeof file)
		return 0;
	const struct gp_text_key key = {
		.hash = {1, 2, 3}, .rows = 1 + (data[0] & 127), .vocabulary = VOCABULARY, .most = LIMIT};
	memcpy(file, data + 1, --size);
	if (data[0] & 128 && size >= HEAD)
		put_head(file, size, &key);
	const int fd = memory_file(file, size, path);
	if (gp_text_cache_read(path, &key, &rows, &err) == GP_OK)
		check_rows(&rows, &key);
	else
		gp_require(err.text[0] && !strchr(err.text, '\n') && !rows.part);
	gp_text_rows_deinit(&rows);
	close(fd);
	return 0;
}
