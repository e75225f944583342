/* SPDX-License-Identifier: Apache-2.0
 *
 * Property: any files in the folder of a tokenizer give a tokenizer or one line
 * of error; any text gives ids of its vocabulary, no more than were asked for
 * (client/text/tokenizer.h). Input: one byte, what the rest is (below); then up
 * to three parts, each with two bytes of length before it: two files and a text.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/text/tokenizer.h"
#include "client/text/utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { BYTE_PAIRS, MERGES, WORD_PIECES, KINDS }; /* MERGES: with a vocabulary of our own */

static char folder[64];

static const char *path_of(const char *name)
{
	static char path[128];
	snprintf(path, sizeof path, "%s/%s", folder, name);
	return path;
}

static void remove_folder(void)
{
	static const char *const names[] = {"vocab.json", "merges.txt", "vocab.txt", "tokenizer_config.json"};
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		unlink(path_of(names[i]));
	rmdir(folder);
}

static void make_folder(void)
{
	strcpy(folder, "/tmp/gpsplit-fuzz-XXXXXX");
	gp_require(mkdtemp(folder));
	atexit(remove_folder);
}

static void write_file(const char *name, struct gp_text text)
{
	FILE *f = fopen(path_of(name), "wb");
	gp_require(f && (text.len == 0 || fwrite(text.at, 1, text.len, f) == text.len) && fclose(f) == 0);
}

static struct gp_text next_part(const uint8_t **data, size_t *size)
{
	size_t len = *size < 2 ? 0 : (size_t)((*data)[0] | (*data)[1] << 8);
	const size_t head = *size < 2 ? *size : 2;
	len = len < *size - head ? len : *size - head;
	const struct gp_text part = {(const char *)*data + head, len};
	*data += head + len;
	*size -= head + len;
	return part;
}

/* The 256 bytes, what joins some letters, and the special tokens. */
static void write_own_vocabulary(void)
{
	static const char *const more[] = {"<s>", "<pad>", "</s>", "<unk>", "<mask>", "in",
					   "ing", "th",    "the",  "ee",    "eeee"};
	FILE *f = fopen(path_of("vocab.json"), "wb");
	gp_require(f);
	int id = 0;
	fprintf(f, "{");
	for (int byte = 0; byte < 256; byte++, id++) {
		const bool own = (byte > 32 && byte < 127) || (byte > 160 && byte != 173);
		static int other;
		other = byte ? other : 256;
		fprintf(f, "%s\"\\u%04x\": %d", byte ? "," : "", (unsigned)(own ? byte : other++), id);
	}
	for (size_t i = 0; i < sizeof more / sizeof more[0]; i++, id++)
		fprintf(f, ",\"%s\": %d", more[i], id);
	fprintf(f, "}");
	gp_require(fclose(f) == 0);
}

static void write_files(int kind, const uint8_t **data, size_t *size)
{
	remove_folder();
	gp_require(access(folder, F_OK) == 0 || mkdtemp(strcpy(folder, "/tmp/gpsplit-fuzz-XXXXXX")));
	switch (kind) {
	case BYTE_PAIRS:
		write_file("vocab.json", next_part(data, size));
		write_file("merges.txt", next_part(data, size));
		break;
	case MERGES:
		write_own_vocabulary();
		write_file("merges.txt", next_part(data, size));
		break;
	default:
		write_file("vocab.txt", next_part(data, size));
		write_file("tokenizer_config.json", next_part(data, size));
	}
}

static void try_text(const struct gp_tokenizer *t, struct gp_text text, int most)
{
	struct gp_token_scratch *s;
	struct gp_token_row row;
	struct gp_err err = {0};
	gp_require(gp_token_scratch_new(t, &s, &err) == GP_OK);
	struct gp_text second = {NULL, 0};
	const char *tab = text.len ? memchr(text.at, '\t', text.len) : NULL;
	if (tab) {
		second = (struct gp_text){tab + 1, text.len - (size_t)(tab + 1 - text.at)};
		text.len = (size_t)(tab - text.at);
	}
	gp_require(gp_tokenizer_row(t, s, text, second, most, &row, &err) == GP_OK);
	gp_require(row.count >= 2 && row.count <= most && row.whole >= row.count);
	for (int i = 0; i < row.count; i++)
		gp_require(row.token[i] >= 0 && row.token[i] < gp_tokenizer_vocabulary(t) &&
			   gp_tokenizer_token(t, row.token[i]) && row.segment[i] <= 1);
	gp_token_scratch_free(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct gp_tokenizer *t = NULL;
	struct gp_err err = {0};
	if (size < 1)
		return 0;
	const int kind = data[0] % KINDS, most = 8 + data[0] / KINDS;
	if (!folder[0])
		make_folder();
	data++, size--;
	write_files(kind, &data, &size);
	if (gp_tokenizer_open(folder, &t, &err) == GP_OK)
		try_text(t, next_part(&data, &size), most);
	else
		gp_require(!t && err.text[0] && (err.code == GP_INVALID || err.code == GP_NOMEM));
	gp_tokenizer_free(t);
	return 0;
}
