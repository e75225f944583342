/* SPDX-License-Identifier: Apache-2.0
 *
 * gpclient tokens: what a tokenizer makes of texts, one given as an argument or
 * the lines of standard input. Test: tests/e2e/tokens.sh
 */
#include "client/commands/commands.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include <jansson.h>

#include "client/text/tokenizer.h"
#include "common/base/mem.h"

#define PROGRAM "gpclient tokens"

struct settings {
	const char *tokenizer;
	int64_t max;
	bool pair, json;
};

#define FIELD(name) offsetof(struct settings, name)

static const struct gp_opt rows[] = {
	{.name = "tokenizer",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(tokenizer),
	 .value = "DIR",
	 .help = "folder with vocab.json and merges.txt (byte pair encoding, RoBERTa), or with vocab.txt (WordPiece, "
		 "BERT)"},
	{.name = "max",
	 .type = GP_OPT_INT,
	 .offset = FIELD(max),
	 .value = "N",
	 .initial = "65536",
	 .min = 8,
	 .max = 1 << 20,
	 .help = "leave out what makes a text longer than that many tokens, special ones included"},
	{.name = "pair",
	 .type = GP_OPT_FLAG,
	 .offset = FIELD(pair),
	 .help = "a text is a pair of texts with a tab between"},
	{.name = "json",
	 .type = GP_OPT_FLAG,
	 .offset = FIELD(json),
	 .help = "print one JSON object for each text: ids, tokens, segments, and length (tokens without --max)"},
};

static const struct gp_opt_table table = {
	.command = PROGRAM,
	.synopsis = "--tokenizer DIR [TEXT] [OPTION...]",
	.about = "Shows the tokens that a language model gets for a text, special ones included: the id and the token, "
		 "a\n"
		 "line for each. Without TEXT every line of standard input is a text, and its ids are printed on one "
		 "line.",
	.examples = "  gpclient tokens --tokenizer roberta 'Tokens cross the link.'\n"
		    "  cut -f 4 cola_dev.tsv | gpclient tokens --tokenizer roberta --max 128\n",
	.positional = "TEXT",
	.positional_max = 1,
	.opt = rows,
	.count = sizeof rows / sizeof rows[0],
};

struct showing {
	struct settings set;
	struct gp_tokenizer *tokenizer;
	struct gp_token_scratch *scratch;
};

/* --- printing --------------------------------------------------------------------------------------------------- */

static json_t *ids_as_json(const struct gp_token_row *row)
{
	json_t *list = json_array();
	for (int i = 0; i < row->count; i++)
		json_array_append_new(list, json_integer(row->token[i]));
	return list;
}

static json_t *tokens_as_json(const struct gp_tokenizer *t, const struct gp_token_row *row)
{
	json_t *list = json_array();
	for (int i = 0; i < row->count; i++) {
		json_t *token = json_string(gp_tokenizer_token(t, row->token[i]));
		json_array_append_new(list, token ? token : json_null()); /* vocab.txt need not be UTF-8 */
	}
	return list;
}

static json_t *segments_as_json(const struct gp_token_row *row)
{
	json_t *list = json_array();
	for (int i = 0; i < row->count; i++)
		json_array_append_new(list, json_integer(row->segment[i]));
	return list;
}

static enum gp_status print_json(const struct showing *s, const struct gp_token_row *row, struct gp_err *err)
{
	json_t *root =
		json_pack("{s:o, s:o, s:o, s:i}", "ids", ids_as_json(row), "tokens", tokens_as_json(s->tokenizer, row),
			  "segments", segments_as_json(row), "length", row->whole);
	if (!root)
		GP_FAIL(err, GP_NOMEM, "out of memory for JSON");
	json_dumpf(root, stdout, JSON_COMPACT);
	printf("\n");
	json_decref(root);
	return GP_OK;
}

static void print_table(const struct showing *s, const struct gp_token_row *row)
{
	for (int i = 0; i < row->count; i++) {
		char token[GP_TOKEN_BYTES_MAX + 1];
		snprintf(token, sizeof token, "%s", gp_tokenizer_token(s->tokenizer, row->token[i]));
		gp_hide_control_characters(token);
		printf("%7d  %s\n", row->token[i], token);
	}
	if (row->count < row->whole)
		printf("%d tokens; %d more were left out (--max)\n", row->count, row->whole - row->count);
	else
		printf("%d tokens\n", row->count);
}

static void print_ids(const struct gp_token_row *row)
{
	for (int i = 0; i < row->count; i++)
		printf("%s%d", i ? " " : "", row->token[i]);
	printf("\n");
}

/* --- texts ------------------------------------------------------------------------------------------------------ */

static enum gp_status split_pair(const struct settings *set, struct gp_text *a, struct gp_text *b, struct gp_err *err)
{
	struct gp_text rest = *a;
	*b = (struct gp_text){NULL, 0};
	if (!set->pair)
		return GP_OK;
	if (!gp_text_cut(&rest, '\t', a) || !rest.at)
		GP_FAIL(err, GP_INVALID, "no tab: with --pair a text is two, with a tab between");
	*b = rest;
	return GP_OK;
}

static enum gp_status make_row(const struct showing *s, struct gp_text text, struct gp_token_row *row,
			       struct gp_err *err)
{
	struct gp_text second;
	GP_TRY(split_pair(&s->set, &text, &second, err));
	return gp_tokenizer_row(s->tokenizer, s->scratch, text, second, (int)s->set.max, row, err);
}

static enum gp_status show_argument(const struct showing *s, const char *text, struct gp_err *err)
{
	struct gp_token_row row;
	GP_TRY(make_row(s, gp_text_of(text), &row, err));
	if (s->set.json)
		return print_json(s, &row, err);
	print_table(s, &row);
	return GP_OK;
}

/* One line, without its end. */
struct line {
	char *text; /* (GP_TEXT_BYTES_MAX) */
	size_t bytes, number;
};

/* Some editors write one in front of a text that is UTF-8; files of texts are read without it. */
static void drop_mark(struct line *l)
{
	static const char mark[] = "\xEF\xBB\xBF";
	const size_t bytes = sizeof mark - 1;
	if (l->bytes < bytes || memcmp(l->text, mark, bytes) != 0)
		return;
	l->bytes -= bytes;
	memmove(l->text, l->text + bytes, l->bytes);
}

/* *more: false at the end of the input. */
static enum gp_status next_line(struct line *l, bool *more, struct gp_err *err)
{
	int c;
	l->bytes = 0;
	l->number++;
	while ((c = getchar_unlocked()) != EOF && c != '\n') {
		if (l->bytes == GP_TEXT_BYTES_MAX)
			GP_FAIL(err, GP_INVALID, "a text of more than %d bytes", GP_TEXT_BYTES_MAX);
		l->text[l->bytes++] = (char)c;
	}
	if (ferror(stdin))
		GP_FAIL(err, GP_INVALID, "cannot be read: %s", strerror(errno));
	*more = c != EOF || l->bytes > 0;
	if (l->bytes && l->text[l->bytes - 1] == '\r')
		l->bytes--;
	if (l->number == 1)
		drop_mark(l);
	return GP_OK;
}

static enum gp_status show_line(const struct showing *s, const struct line *l, struct gp_err *err)
{
	struct gp_token_row row;
	GP_TRY(make_row(s, (struct gp_text){l->text, l->bytes}, &row, err));
	if (s->set.json)
		return print_json(s, &row, err);
	print_ids(&row);
	return GP_OK;
}

static enum gp_status show_lines(const struct showing *s, struct gp_err *err)
{
	struct line l = {0};
	void *text;
	bool more = true;
	GP_TRY(gp_alloc_array(&text, GP_TEXT_BYTES_MAX, 1, err));
	l.text = text;
	enum gp_status status = next_line(&l, &more, err);
	while (status == GP_OK && more) {
		status = show_line(s, &l, err);
		if (status == GP_OK)
			status = next_line(&l, &more, err);
	}
	gp_free(text);
	return status == GP_OK ? GP_OK : gp_err_prefix(err, "standard input, line %zu", l.number);
}

static enum gp_status run(int argc, char **argv, struct showing *s, struct gp_options_result *r, struct gp_err *err)
{
	GP_TRY(gp_options_parse(&table, argc, argv, &s->set, r, err));
	if (r->help)
		return GP_OK;
	if (!s->set.tokenizer)
		GP_FAIL(err, GP_USAGE, "--tokenizer DIR is missing: the folder of its files");
	GP_TRY(gp_tokenizer_open(s->set.tokenizer, &s->tokenizer, err));
	GP_TRY(gp_token_scratch_new(s->tokenizer, &s->scratch, err));
	return r->positionals ? show_argument(s, r->positional[0], err) : show_lines(s, err);
}

int gp_cmd_tokens(int argc, char **argv)
{
	struct showing s = {0};
	struct gp_options_result r = {0};
	struct gp_err err = {0};
	const enum gp_status status = run(argc, argv, &s, &r, &err);
	gp_token_scratch_free(s.scratch);
	gp_tokenizer_free(s.tokenizer);
	gp_options_free(&r);
	if (status != GP_OK)
		gp_err_print(&err, PROGRAM);
	return gp_status_exit(status);
}
