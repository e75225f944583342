/* SPDX-License-Identifier: Apache-2.0
 *
 * What a file of weights says about itself. See saved_model.h.
 * Tests: tests/unit/test_saved_model.c, tests/fuzz/fuzz_safetensors.c
 */
#include "client/weights/saved_model.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/costs/partitions.h"
#include "common/base/value.h"

#define PREFIX       "gpsplit."
#define FORMAT       "1"
#define SCALE        "1/255" /* data_transform.c */
#define LABELS_BYTES (1u << 20)
#define LABELS_MOST  100000 /* dataset classes */
#define SIDE_MOST    4096
#define HASH_DIGITS  16

static const char *const insert_key[GP_INSERT_ENDS] = {"insert_up", "insert_down"};

/* --- texts ------------------------------------------------------------------------------------------------------ */

static enum gp_status refuse(const char *label, const char *key, const char *wanted, struct gp_err *err)
{
	GP_FAIL(err, GP_INVALID, "%s: its metadata " PREFIX "%s is not %s", label, key, wanted);
}

static const char *find(const struct gp_st_file *f, const char *key)
{
	char name[32];
	snprintf(name, sizeof name, PREFIX "%s", key);
	return gp_st_metadata(f, name);
}

static enum gp_status read_text(const struct gp_st_file *f, const char *label, const char *key, char *out, size_t size,
				struct gp_err *err)
{
	const char *text = find(f, key);
	if (!text)
		return GP_OK;
	if (strlen(text) >= size || !gp_text_is_printable(text))
		return refuse(label, key, "a short printable text", err);
	strcpy(out, text);
	return GP_OK;
}

static bool parse_shape(const char *text, struct gp_shape *out)
{
	return gp_shape_parse_chw(text, out) && (out->dim[2] == 1 || out->dim[2] == 3) && out->dim[0] <= SIDE_MOST &&
	       out->dim[1] <= SIDE_MOST;
}

static void shape_text(const struct gp_shape *s, char text[GP_SAVED_TEXT])
{
	snprintf(text, GP_SAVED_TEXT, "%" PRId64 "x%" PRId64 "x%" PRId64, s->dim[2], s->dim[0], s->dim[1]);
}

static bool parse_statistics(const char *text, double least, float out[3])
{
	const struct gp_value_form form = {.type = GP_VALUE_REAL, .min = least, .max = 1e6};
	char why[GP_VALUE_WHY];
	struct gp_text rest = gp_text_of(text), part;
	union gp_value v;
	int n = 0;
	for (; gp_text_cut(&rest, '/', &part); n++) {
		if (n == 3 || !gp_value_parse(&form, part, &v, why))
			return false;
		out[n] = (float)v.real;
	}
	if (n == 1)
		out[1] = out[2] = out[0];
	return n == 1 || n == 3;
}

/* 9 digits give a float back. */
static void statistics_text(const float *v, int channels, char text[GP_SAVED_TEXT])
{
	if (channels == 1)
		snprintf(text, GP_SAVED_TEXT, "%.9g", (double)v[0]);
	else
		snprintf(text, GP_SAVED_TEXT, "%.9g/%.9g/%.9g", (double)v[0], (double)v[1], (double)v[2]);
}

/* --- reading ---------------------------------------------------------------------------------------------------- */

static enum gp_status read_labels(const struct gp_st_file *f, const char *label, struct gp_saved_model *m,
				  struct gp_err *err)
{
	static const char wanted[] = "a JSON array of short printable texts";
	const char *text = find(f, "labels");
	if (!text)
		return GP_OK;
	const size_t len = strlen(text);
	m->labels = len <= LABELS_BYTES ? json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL) : NULL;
	if (!json_is_array(m->labels) || json_array_size(m->labels) > LABELS_MOST)
		return refuse(label, "labels", wanted, err);
	for (size_t i = 0; i < json_array_size(m->labels); i++) {
		const char *name = json_string_value(json_array_get(m->labels, i));
		if (!name || strlen(name) >= GP_SAVED_LABEL || !gp_text_is_printable(name))
			return refuse(label, "labels", wanted, err);
	}
	return GP_OK;
}

/* Tokens have a number in the place of a shape. */
static enum gp_status read_input(const struct gp_st_file *f, const char *label, struct gp_saved_model *m,
				 struct gp_err *err)
{
	const char *input = find(f, "input"), *source = find(f, "pictures");
	if (!input || (gp_parse_i64(input, &m->tokens) && m->tokens >= 1 && m->tokens <= 1 << 20))
		return GP_OK;
	m->tokens = 0;
	if (!parse_shape(input, &m->pictures.shape))
		return refuse(label, "input", "CxHxW or a number of tokens", err);
	if (source && !parse_shape(source, &m->pictures.source))
		return refuse(label, "pictures", "CxHxW", err);
	return GP_OK;
}

static enum gp_status read_pictures(const struct gp_st_file *f, const char *label, struct gp_saved_model *m,
				    struct gp_err *err)
{
	const char *mean = find(f, "mean"), *std = find(f, "std"), *scale = find(f, "scale");
	GP_TRY(read_input(f, label, m, err));
	if (m->pictures.shape.ndim == 0)
		return GP_OK;
	if (!mean || !parse_statistics(mean, -1e6, m->pictures.mean))
		return refuse(label, "mean", "one number or three as a/b/c", err);
	if (!std || !parse_statistics(std, 1e-6, m->pictures.std))
		return refuse(label, "std", "one positive number or three as a/b/c", err);
	if (!scale || strcmp(scale, SCALE) != 0)
		return refuse(label, "scale", SCALE ", which is all that this version can do", err);
	return GP_OK;
}

static enum gp_status read_steps(const struct gp_st_file *f, const char *label, struct gp_saved_model *m,
				 struct gp_err *err)
{
	const char *text = find(f, "steps");
	int64_t steps;
	if (!text)
		return GP_OK;
	if (!gp_parse_i64(text, &steps) || steps < 0)
		return refuse(label, "steps", "a number", err);
	m->steps = (uint64_t)steps;
	return GP_OK;
}

static enum gp_status read_tokenizer(const struct gp_st_file *f, const char *label, struct gp_saved_model *m,
				     struct gp_err *err)
{
	const char *text = find(f, "tokenizer");
	if (!text)
		return GP_OK;
	if (strlen(text) != HASH_DIGITS || strspn(text, "0123456789abcdef") != HASH_DIGITS)
		return refuse(label, "tokenizer", "16 hex digits", err);
	m->tokenizer = strtoull(text, NULL, 16);
	return GP_OK;
}

/* In the order of enum gp_saved_texts. */
static const char texts_choices[] = "|single|pairs";

static enum gp_status read_texts(const struct gp_st_file *f, const char *label, struct gp_saved_model *m,
				 struct gp_err *err)
{
	const char *text = find(f, "texts");
	const int choice = text ? gp_choice_index(texts_choices, gp_text_of(text)) : GP_SAVED_TEXTS_UNKNOWN;
	if (choice < 0)
		return refuse(label, "texts", "single or pairs", err);
	m->texts = (enum gp_saved_texts)choice;
	return GP_OK;
}

/* The texts are parsed where they are used, as those of flags are. */
static enum gp_status read_insertion(const struct gp_st_file *f, const char *label, struct gp_saved_model *m,
				     struct gp_err *err)
{
	GP_TRY(read_text(f, label, "cut", m->cut, sizeof m->cut, err));
	for (int e = 0; e < GP_INSERT_ENDS; e++)
		GP_TRY(read_text(f, label, insert_key[e], m->insert[e], sizeof m->insert[e], err));
	if ((m->insert[GP_INSERT_UP][0] || m->insert[GP_INSERT_DOWN][0]) && !m->cut[0])
		return refuse(label, "cut", "there, though it has insertions, which stand at one", err);
	return GP_OK;
}

static enum gp_status read_all(const struct gp_st_file *f, const char *label, struct gp_saved_model *m,
			       struct gp_err *err)
{
	const char *format = find(f, "format");
	if (!format)
		return GP_OK;
	if (strcmp(format, FORMAT) != 0)
		return refuse(label, "format", FORMAT ", the one that this version reads; a newer gpclient wrote it",
			      err);
	GP_TRY(read_text(f, label, "version", m->version, sizeof m->version, err));
	GP_TRY(read_text(f, label, "model", m->model, sizeof m->model, err));
	GP_TRY(read_text(f, label, "data", m->data, sizeof m->data, err));
	GP_TRY(read_text(f, label, "run", m->run, sizeof m->run, err));
	GP_TRY(read_insertion(f, label, m, err));
	GP_TRY(read_steps(f, label, m, err));
	GP_TRY(read_tokenizer(f, label, m, err));
	GP_TRY(read_texts(f, label, m, err));
	GP_TRY(read_pictures(f, label, m, err));
	return read_labels(f, label, m, err);
}

enum gp_status gp_saved_model_parse(const struct gp_st_file *f, const char *label, struct gp_saved_model *out,
				    struct gp_err *err)
{
	struct gp_saved_model m = {.file_bytes = gp_st_bytes(f).len};
	if (read_all(f, label, &m, err) != GP_OK) {
		gp_saved_model_deinit(&m);
		return err->code;
	}
	*out = m;
	return GP_OK;
}

enum gp_status gp_saved_model_read(const char *path, struct gp_saved_model *out, struct gp_err *err)
{
	struct gp_st_file *f;
	GP_TRY(gp_st_open(path, &f, err));
	const enum gp_status status = gp_saved_model_parse(f, path, out, err);
	gp_st_close(f);
	return status;
}

void gp_saved_model_deinit(struct gp_saved_model *m)
{
	json_decref(m->labels);
	*m = (struct gp_saved_model){0};
}

int gp_saved_model_labels(const struct gp_saved_model *m)
{
	return (int)json_array_size(m->labels);
}

const char *gp_saved_model_label(const struct gp_saved_model *m, int index)
{
	return json_string_value(json_array_get(m->labels, (size_t)index));
}

bool gp_saved_model_data(const struct gp_saved_model *m, char text[GP_SAVED_TEXT])
{
	char shape[GP_SAVED_TEXT];
	const int labels = gp_saved_model_labels(m);
	if (m->pictures.shape.ndim == 0 || labels < 2)
		return false;
	snprintf(text, GP_SAVED_TEXT, "pictures:classes=%d", labels);
	if (m->pictures.source.ndim == 0)
		return true;
	shape_text(&m->pictures.source, shape);
	gp_text_append(text, GP_SAVED_TEXT, ",shape=%s", shape);
	return true;
}

/* --- what a run has to say -------------------------------------------------------------------------------------- */

/* Names of folders need not be UTF-8, which JSON and safetensors have to be. */
static json_t *text_json(const char *name)
{
	char plain[GP_SAVED_LABEL];
	json_t *text = gp_text_is_printable(name) ? json_string(name) : NULL;
	if (text)
		return text;
	snprintf(plain, sizeof plain, "%s", name);
	for (char *c = plain; *c; c++)
		if ((unsigned char)*c < 0x20 || (unsigned char)*c >= 0x7f)
			*c = '?';
	return json_string(plain);
}

static enum gp_status list_labels(const struct gp_dataset *d, json_t **out, struct gp_err *err)
{
	json_t *list = json_array();
	for (int i = 0; list && i < gp_dataset_classes(d); i++) {
		if (json_array_append_new(list, text_json(gp_dataset_class_name(d, i))) != 0) {
			json_decref(list);
			list = NULL;
		}
	}
	if (!list)
		GP_FAIL(err, GP_NOMEM, "out of memory for labels");
	*out = list;
	return GP_OK;
}

/* The same of a file that an option names: "tsv:a.tsv,val=/somewhere/b.tsv" to "tsv:a.tsv,val=b.tsv". */
static void cut_val(char *data)
{
	static const char option[] = ",val=";
	char *path = strstr(data, option);
	if (!path)
		return;
	path += sizeof option - 1;
	char *begin = path, *end = path + strcspn(path, ",");
	for (char *c = path; c + 1 < end; c++)
		if (*c == '/' && c[1] != '/')
			begin = c + 1;
	memmove(path, begin, strlen(begin) + 1);
}

/* "folder:/somewhere/flowers,size=96" to "folder:flowers,size=96": where it lay is nobody's business who gets the file. */
static void copy_data(const char *data, char out[GP_SAVED_TEXT])
{
	const size_t head = strcspn(data, ":"), end = strcspn(data, ",");
	size_t from = data[head] == ':' && head < end ? head + 1 : 0, stop = end;
	if (strncmp(data + from, "mean=", 5) == 0 || strncmp(data + from, "std=", 4) == 0)
		from = stop; /* no folder, though there are slashes */
	while (stop > from && data[stop - 1] == '/')
		stop--;
	size_t begin = stop;
	while (begin > from && data[begin - 1] != '/')
		begin--;
	char whole[4096]; /* cut to its length only when paths are out of it */
	snprintf(whole, sizeof whole, "%.*s%.*s%s", (int)from, data, (int)(stop - begin), data + begin, data + end);
	cut_val(whole);
	snprintf(out, GP_SAVED_TEXT, "%.*s", GP_SAVED_TEXT - 1, whole);
	for (char *c = out; *c; c++)
		if ((unsigned char)*c < 0x20 || (unsigned char)*c >= 0x7f)
			*c = '?';
}

enum gp_status gp_saved_model_describe(const char *settled, const struct gp_dataset *d, const char *data,
				       struct gp_saved_model *out, struct gp_err *err)
{
	struct gp_saved_model m = {.version = GP_VERSION};
	snprintf(m.model, sizeof m.model, "%s", settled);
	copy_data(data, m.data);
	m.tokenizer = gp_dataset_tokenizer(d);
	if (m.tokenizer != 0)
		m.texts = gp_dataset_has_pairs(d) ? GP_SAVED_TEXTS_PAIRS : GP_SAVED_TEXTS_SINGLE;
	gp_dataset_preparation(d, &m.pictures);
	if (m.pictures.shape.ndim == 0)
		m.tokens = gp_dataset_shape(d)->dim[0];
	if (gp_dataset_classes(d) > 0)
		GP_TRY(list_labels(d, &m.labels, err));
	*out = m;
	return GP_OK;
}

void gp_saved_model_add_insertion(struct gp_saved_model *m, const struct gp_graph *g, const struct gp_cut *cut,
				  const struct gp_insertion *ins)
{
	if (!gp_insertion_any(ins))
		return;
	gp_partition_text(g, cut, m->cut);
	for (int e = 0; e < GP_INSERT_ENDS; e++)
		if (ins->end[e].spec.sets > 0)
			gp_insert_spec_text(&ins->end[e].spec, m->insert[e]);
}

/* --- writing ---------------------------------------------------------------------------------------------------- */

static void add(struct gp_saved_pairs *p, const char *key, const char *value)
{
	gp_require(p->count < (int)(sizeof p->pair / sizeof p->pair[0]));
	if (value[0])
		p->pair[p->count++] = (struct gp_st_pair){key, value};
}

static char *room(struct gp_saved_pairs *p)
{
	gp_require(p->texts < (int)(sizeof p->text / sizeof p->text[0]));
	return p->text[p->texts++];
}

static void add_pictures(struct gp_saved_pairs *p, const struct gp_preparation *pictures)
{
	const int channels = (int)pictures->shape.dim[2];
	char *input = room(p), *source = room(p), *mean = room(p), *std = room(p);
	shape_text(&pictures->shape, input);
	add(p, PREFIX "input", input);
	if (pictures->source.ndim > 0) {
		shape_text(&pictures->source, source);
		add(p, PREFIX "pictures", source);
	}
	statistics_text(pictures->mean, channels, mean);
	statistics_text(pictures->std, channels, std);
	add(p, PREFIX "mean", mean);
	add(p, PREFIX "std", std);
	add(p, PREFIX "scale", SCALE);
}

static enum gp_status add_labels(struct gp_saved_pairs *p, const struct gp_saved_model *m, struct gp_err *err)
{
	if (!m->labels)
		return GP_OK;
	p->labels = json_dumps(m->labels, JSON_COMPACT);
	if (!p->labels)
		GP_FAIL(err, GP_NOMEM, "out of memory for labels");
	if (strlen(p->labels) <= LABELS_BYTES) /* else nobody would read them */
		add(p, PREFIX "labels", p->labels);
	return GP_OK;
}

enum gp_status gp_saved_pairs_make(const struct gp_saved_model *m, struct gp_saved_pairs *out, struct gp_err *err)
{
	struct gp_saved_pairs *p = out;
	*p = (struct gp_saved_pairs){.count = 0};
	add(p, PREFIX "format", FORMAT);
	add(p, PREFIX "version", m->version);
	add(p, PREFIX "model", m->model);
	add(p, PREFIX "data", m->data);
	add(p, PREFIX "run", m->run);
	add(p, PREFIX "cut", m->cut);
	add(p, PREFIX "insert_up", m->insert[GP_INSERT_UP]);
	add(p, PREFIX "insert_down", m->insert[GP_INSERT_DOWN]);
	if (m->pictures.shape.ndim > 0) {
		add_pictures(p, &m->pictures);
	} else if (m->tokens > 0) {
		char *tokens = room(p);
		snprintf(tokens, GP_SAVED_TEXT, "%" PRId64, m->tokens);
		add(p, PREFIX "input", tokens);
	}
	char *tokenizer = room(p), *steps = room(p);
	snprintf(tokenizer, GP_SAVED_TEXT, "%016" PRIx64, m->tokenizer);
	if (m->tokenizer != 0)
		add(p, PREFIX "tokenizer", tokenizer);
	if (m->texts != GP_SAVED_TEXTS_UNKNOWN)
		add(p, PREFIX "texts", m->texts == GP_SAVED_TEXTS_PAIRS ? "pairs" : "single");
	snprintf(steps, GP_SAVED_TEXT, "%" PRIu64, m->steps);
	if (m->steps > 0)
		add(p, PREFIX "steps", steps);
	return add_labels(p, m, err);
}

void gp_saved_pairs_deinit(struct gp_saved_pairs *p)
{
	free(p->labels);
	*p = (struct gp_saved_pairs){.count = 0};
}
