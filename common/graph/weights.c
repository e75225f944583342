/* SPDX-License-Identifier: Apache-2.0
 *
 * Parameter values in host memory, see weights.h. The file format is
 * safetensors.c's business. Test: tests/unit/test_weights.c
 */
#include "common/graph/weights.h"

#include <fnmatch.h>
#include <openssl/evp.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/store/safetensors.h"

enum gp_status gp_weights_new(const struct gp_graph *g, struct gp_weights **out, struct gp_err *err)
{
	struct gp_weights *w;
	GP_TRY(gp_alloc_array((void **)&w, 1, sizeof *w, err));
	w->graph = g;
	if (gp_alloc_array((void **)&w->value, (size_t)g->params, sizeof(*w->value), err) != GP_OK)
		goto fail;
	for (int i = 0; i < g->params; i++)
		if (gp_alloc_array((void **)&w->value[i], g->param[i].count, sizeof(float), err) != GP_OK)
			goto fail;
	*out = w;
	return GP_OK;
fail:
	gp_weights_free(w);
	return err->code;
}

static void free_values(struct gp_weights *w)
{
	for (int i = 0; w->value && i < w->graph->params; i++)
		gp_free(w->value[i]);
	gp_free(w->value);
	gp_graph_free(w->own);
}

void gp_weights_free(struct gp_weights *w)
{
	if (!w)
		return;
	free_values(w);
	gp_free(w);
}

/* What follows another parameter has its values, whatever the file says. */
static void tie(struct gp_weights *w)
{
	const int lead = w->graph->tied[0], follower = w->graph->tied[1];
	if (gp_graph_is_tied(w->graph))
		memcpy(w->value[follower], w->value[lead], w->graph->param[lead].count * sizeof(float));
}

enum gp_status gp_weights_fit(struct gp_weights *w, const struct gp_decays *d, const struct gp_graph *start,
			      uint64_t steps, struct gp_err *err)
{
	struct gp_graph *graph;
	struct gp_weights *other;
	if (d->count == 0)
		return GP_OK;
	GP_TRY(gp_decays_graph(d, start, steps, &graph, err));
	const enum gp_status status = gp_weights_new(graph, &other, err);
	if (status != GP_OK) {
		gp_graph_free(graph);
		return status;
	}
	other->own = graph;
	free_values(w);
	*w = *other;
	gp_free(other);
	return GP_OK;
}

void gp_weights_init(struct gp_weights *w, uint64_t seed)
{
	for (int i = 0; i < w->graph->params; i++)
		gp_param_init(&w->graph->param[i], seed, w->value[i]);
}

/* --- loading ---------------------------------------------------------------------------------------------------- */

/* Room that is kept for " and N more". */
#define MORE_ROOM   24
/* Characters for each list where one line holds several; an entry of mismatched_names has two shapes, too. */
#define SHORT_LIST  60
#define SHAPES_ROOM 40

#define GLOB_MAX 128

/* A load under way. */
struct load {
	const struct gp_graph *g;
	const struct gp_st_file *f;
	bool strict;
	const char *skip; /* NULL: nothing is left out */
	bool *taken;      /* by tensor of the file: it holds a parameter */
	struct gp_weights_report *r;
};

/* "a, b, c" in a report; what no longer fits is only counted. */
struct name_list {
	char *text;
	size_t size;
	int *count;
	int listed;
};

static void add_to_list(struct name_list *l, const char *name)
{
	size_t used = strlen(l->text), need = strlen(name) + (used ? 2 : 0);
	if (l->listed == *l->count && used + need + MORE_ROOM < l->size) {
		snprintf(l->text + used, l->size - used, "%s%s", used ? ", " : "", name);
		l->listed++;
	}
	++*l->count;
}

static void end_list(const struct name_list *l)
{
	size_t used = strlen(l->text);
	if (l->listed < *l->count)
		snprintf(l->text + used, l->size - used, "%s%d more", used ? " and " : "", *l->count - l->listed);
}

static bool ends_with(const char *text, const char *end)
{
	const size_t len = strlen(text), tail = strlen(end);
	return len >= tail && strcmp(text + len - tail, end) == 0;
}

/* Holds nothing that a model could miss: a count of batches, the numbers 0, 1, 2, ..., or no bytes at all. */
static bool passed_over(const struct gp_st_tensor *t)
{
	return t->bytes == 0 || ends_with(t->name, "num_batches_tracked") || ends_with(t->name, "position_ids");
}

/* A parameter's name without the model's, which an encoder that was saved without a head of its own does not write:
 * "embeddings.LayerNorm.weight" for "roberta.embeddings.LayerNorm.weight". NULL: it has no such prefix. */
static const char *without_model(const struct gp_graph *g, const char *name)
{
	const size_t len = strlen(g->name);
	return strncmp(name, g->name, len) == 0 && name[len] == '.' ? name + len + 1 : NULL;
}

/* As TensorFlow called weight and bias of a layer norm, and BERT's first files still do. False: it is none of one. */
static bool old_norm_name(const char *name, char old[GP_NAME_MAX])
{
	const bool weight = ends_with(name, ".LayerNorm.weight");
	if (!weight && !ends_with(name, ".LayerNorm.bias"))
		return false;
	snprintf(old, GP_NAME_MAX, "%.*s%s", (int)(strrchr(name, '.') + 1 - name), name, weight ? "gamma" : "beta");
	return true;
}

const char *gp_weights_file_name(const char *param)
{
	static const char *const name[][2] = {{"lm_head.decoder.bias", "lm_head.bias"},
					      {"cls.predictions.decoder.bias", "cls.predictions.bias"}};
	for (size_t i = 0; i < sizeof name / sizeof name[0]; i++)
		if (strcmp(param, name[i][0]) == 0)
			return name[i][1];
	return param;
}

/* The tensor that holds a parameter, by its name or one of the others it may have; NULL: none does. */
static const struct gp_st_tensor *find_tensor(const struct load *l, const char *name)
{
	const char *names[] = {gp_weights_file_name(name), name, without_model(l->g, name)};
	char old[GP_NAME_MAX];
	for (int i = 0; i < 3 && names[i]; i++) {
		const struct gp_st_tensor *t = gp_st_find(l->f, names[i]);
		if (!t && old_norm_name(names[i], old))
			t = gp_st_find(l->f, old);
		if (t)
			return t;
	}
	return NULL;
}

static void mark(struct load *l, const struct gp_st_tensor *t)
{
	if (t)
		l->taken[t - gp_st_at(l->f, 0)] = true;
}

/* Marks the tensors of the file that hold parameters: under both names, where a file has one twice. */
static enum gp_status mark_taken(struct load *l, struct gp_err *err)
{
	GP_TRY(gp_alloc_array((void **)&l->taken, (size_t)gp_st_count(l->f) + 1, sizeof *l->taken, err));
	for (int i = 0; i < l->g->params; i++) {
		mark(l, find_tensor(l, l->g->param[i].name));
		mark(l, gp_st_find(l->f, l->g->param[i].name));
	}
	return GP_OK;
}

/* The glob at *skip, up to its comma, into glob[GLOB_MAX]; moves on. False: no more, or too long (`glob` is empty). */
static bool next_glob(const char **skip, char *glob)
{
	*skip += strspn(*skip, ",");
	size_t len = strcspn(*skip, ",");
	glob[0] = '\0';
	if (len == 0 || len >= GLOB_MAX)
		return false;
	memcpy(glob, *skip, len);
	glob[len] = '\0';
	*skip += len;
	return true;
}

bool gp_weights_are_skipped(const char *skip, const char *name)
{
	char glob[GLOB_MAX];
	while (skip && next_glob(&skip, glob))
		if (fnmatch(glob, name, 0) == 0)
			return true;
	return false;
}

/* Whether a glob fits the parameter's own name or the name that its tensor, NULL where there is none, has in the file. */
static bool is_skipped(const struct load *l, const char *name, const struct gp_st_tensor *t)
{
	return gp_weights_are_skipped(l->skip, name) || (t && gp_weights_are_skipped(l->skip, t->name));
}

/* The tensor to load a parameter from; NULL: the file has none, or it is skipped. */
static const struct gp_st_tensor *wanted_tensor(const struct load *l, const char *name)
{
	const struct gp_st_tensor *t = find_tensor(l, name);
	return is_skipped(l, name, t) ? NULL : t;
}

static bool matches_something(const struct load *l, const char *glob)
{
	for (int i = 0; i < l->g->params; i++)
		if (fnmatch(glob, l->g->param[i].name, 0) == 0)
			return true;
	for (int i = 0; i < gp_st_count(l->f); i++)
		if (fnmatch(glob, gp_st_at(l->f, i)->name, 0) == 0)
			return true;
	return false;
}

/* A slip in a glob would otherwise pass for a layer that was replaced. */
static enum gp_status check_globs(const struct load *l, struct gp_err *err)
{
	char glob[GLOB_MAX];
	const char *rest = l->skip;
	while (rest && next_glob(&rest, glob))
		if (!matches_something(l, glob))
			GP_FAIL(err, GP_INVALID, "'%s' matches no tensor of it and no parameter of %s", glob,
				l->g->name);
	if (rest && *rest)
		GP_FAIL(err, GP_INVALID, "a pattern of more than %d characters", GLOB_MAX - 1);
	return GP_OK;
}

/* "classifier.weight: file has 100x64, model wants 10x64" into text. False: it can be read. */
static bool mismatch(const struct gp_param *p, const struct gp_st_tensor *t, char *text, size_t size)
{
	char has[64], wants[64];
	if (t->dtype == GP_ST_OTHER && t->dims <= GP_MAX_DIMS)
		snprintf(text, size, "%s: file has %.20s, which is not supported", p->name, t->type);
	else if (t->dtype == GP_ST_OTHER)
		snprintf(text, size, "%s: file has %d dimensions, model wants %s", p->name, t->dims,
			 gp_shape_text(&p->shape, wants, sizeof wants));
	else if (!gp_shape_equal(&p->shape, &t->shape))
		snprintf(text, size, "%s: file has %s, model wants %s", p->name,
			 t->shape.ndim ? gp_shape_text(&t->shape, has, sizeof has) : "a scalar",
			 gp_shape_text(&p->shape, wants, sizeof wants));
	else if (t->dtype == GP_ST_I32 || t->dtype == GP_ST_I64 || t->dtype == GP_ST_U8)
		snprintf(text, size, "%s: file has integers, model wants real numbers", p->name);
	else
		return false;
	return true;
}

/* `size`: of each list, at most that of the report's less SHAPES_ROOM. */
static void compare_params(const struct load *l, size_t size, struct name_list *skipped)
{
	struct gp_weights_report *r = l->r;
	struct name_list missing = {r->missing_names, size, &r->missing, 0};
	struct name_list mismatched = {r->mismatched_names, size + SHAPES_ROOM, &r->mismatched, 0};
	for (int i = 0; i < l->g->params; i++) {
		const struct gp_param *p = &l->g->param[i];
		const struct gp_st_tensor *t = find_tensor(l, p->name);
		char text[2 * GP_NAME_MAX + 64];
		if (is_skipped(l, p->name, t))
			add_to_list(skipped, p->name);
		else if (!t && p->follows)
			continue;
		else if (!t)
			add_to_list(&missing, p->name);
		else if (mismatch(p, t, text, sizeof text))
			add_to_list(&mismatched, text);
		else
			r->loaded++;
	}
	end_list(&missing);
	end_list(&mismatched);
}

static void compare(const struct load *l, size_t size)
{
	struct gp_weights_report *r = l->r;
	*r = (struct gp_weights_report){0};
	struct name_list unexpected = {r->unexpected_names, size, &r->unexpected, 0};
	struct name_list skipped = {r->skipped_names, sizeof r->skipped_names, &r->skipped, 0};
	compare_params(l, size, &skipped);
	for (int i = 0; i < gp_st_count(l->f); i++) {
		const struct gp_st_tensor *t = gp_st_at(l->f, i);
		const char *name = t->name;
		if (l->taken[i] || passed_over(t))
			continue;
		add_to_list(gp_weights_are_skipped(l->skip, name) ? &skipped : &unexpected, name);
	}
	end_list(&unexpected);
	end_list(&skipped);
}

static enum gp_status nothing_to_load(const struct load *l, struct gp_err *err)
{
	if (l->r->skipped)
		GP_FAIL(err, GP_INVALID, "nothing of %s is left to load: skipped %s", l->g->name, l->r->skipped_names);
	GP_FAIL(err, GP_INVALID, "no parameter of %s is in the file; it has: %s", l->g->name,
		l->r->unexpected ? l->r->unexpected_names : "nothing");
}

static enum gp_status check_report(const struct load *l, struct gp_err *err)
{
	const struct gp_weights_report *r = l->r;
	char missing[GP_ERR_TEXT + GP_NAME_MAX] = "", unexpected[GP_ERR_TEXT + GP_NAME_MAX] = "";
	bool strict = l->strict;
	if (r->loaded == 0 && r->mismatched == 0)
		return nothing_to_load(l, err);
	if (!r->mismatched && !(strict && (r->missing || r->unexpected)))
		return GP_OK;
	if (strict && r->missing)
		snprintf(missing, sizeof missing, "%s%d parameters of %s are missing: %s", r->mismatched ? "; " : "",
			 r->missing, l->g->name, r->missing_names);
	if (strict && r->unexpected)
		snprintf(unexpected, sizeof unexpected, "%s%d tensors are none of %s's: %s",
			 r->mismatched || r->missing ? "; " : "", r->unexpected, l->g->name, r->unexpected_names);
	GP_FAIL(err, GP_INVALID, "%s%s%s", r->mismatched_names, missing, unexpected);
}

static enum gp_status check_file(struct load *l, struct gp_err *err)
{
	const struct gp_weights_report *r = l->r;
	GP_TRY(check_globs(l, err));
	GP_TRY(mark_taken(l, err));
	compare(l, sizeof r->missing_names - SHAPES_ROOM);
	if (l->strict && !!r->mismatched + !!r->missing + !!r->unexpected > 1)
		compare(l, SHORT_LIST);
	return check_report(l, err);
}

/* After both were read: a parameter that follows another has values of its own in the file. */
static bool finds_untied(const struct gp_weights *w, const struct load *l)
{
	const struct gp_graph *g = w->graph;
	const int lead = g->tied[0], follower = g->tied[1];
	const struct gp_st_tensor *tensor[2];
	if (!gp_graph_is_tied(g))
		return false;
	for (int i = 0; i < 2; i++)
		tensor[i] = wanted_tensor(l, g->param[g->tied[i]].name);
	if (!tensor[0] || !tensor[1] || tensor[0] == tensor[1])
		return false;
	return memcmp(w->value[lead], w->value[follower], g->param[lead].count * sizeof(float)) != 0;
}

static enum gp_status load_values(struct gp_weights *w, const char *path, struct load *l, struct gp_err *err)
{
	struct gp_weights_report own;
	struct gp_st_file *f;
	if (!l->r)
		l->r = &own;
	GP_TRY(gp_st_open(path, &f, err));
	l->g = w->graph;
	l->f = f;
	enum gp_status status = check_file(l, err);
	if (status != GP_OK)
		status = gp_err_prefix(err, "%s", path);
	for (int i = 0; i < w->graph->params && status == GP_OK; i++) {
		const struct gp_st_tensor *t = wanted_tensor(l, w->graph->param[i].name);
		if (t) /* cannot fail: mismatch() has seen its type */
			gp_require(gp_st_read_f32(t, w->value[i], err) == GP_OK);
	}
	if (status == GP_OK) {
		l->r->untied = finds_untied(w, l);
		tie(w);
	}
	gp_free(l->taken);
	gp_st_close(f);
	return status;
}

enum gp_status gp_weights_load(struct gp_weights *w, const char *path, bool strict, struct gp_weights_report *report,
			       struct gp_err *err)
{
	struct load l = {.strict = strict, .r = report};
	return load_values(w, path, &l, err);
}

enum gp_status gp_weights_load_except(struct gp_weights *w, const char *path, const char *skip,
				      struct gp_weights_report *report, struct gp_err *err)
{
	struct load l = {.strict = true, .skip = skip, .r = report};
	return load_values(w, path, &l, err);
}

/* --- saving and hashing ----------------------------------------------------------------------------------------- */

enum gp_status gp_weights_save(const struct gp_weights *w, const char *path, struct gp_err *err)
{
	return gp_weights_save_with(w, path, NULL, 0, err);
}

enum gp_status gp_weights_save_with(const struct gp_weights *w, const char *path, const struct gp_st_pair *more,
				    int count, struct gp_err *err)
{
	const struct gp_graph *g = w->graph;
	struct gp_st_pair meta[2 + GP_WEIGHTS_PAIRS] = {{"format", "pt"}, {"model", g->name}};
	struct gp_st_item *items;
	gp_require(count <= GP_WEIGHTS_PAIRS);
	for (int i = 0; i < count; i++)
		meta[2 + i] = more[i];
	GP_TRY(gp_alloc_array((void **)&items, (size_t)g->params, sizeof *items, err));
	int written = 0;
	for (int i = 0; i < g->params; i++)
		if (!g->param[i].follows)
			items[written++] = (struct gp_st_item){gp_weights_file_name(g->param[i].name),
							       g->param[i].shape, w->value[i], GP_ST_F32};
	enum gp_status status = gp_st_write(path, items, written, meta, 2 + count, err);
	gp_free(items);
	return status;
}

struct named {
	const char *name;
	const float *value;
	size_t bytes;
};

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct named *)a)->name, ((const struct named *)b)->name);
}

static bool hash(const struct named *list, int count, unsigned char digest[EVP_MAX_MD_SIZE])
{
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	bool ok = ctx && EVP_DigestInit_ex(ctx, EVP_sha256(), NULL);
	for (int i = 0; i < count && ok; i++)
		ok = EVP_DigestUpdate(ctx, list[i].value, list[i].bytes);
	ok = ok && EVP_DigestFinal_ex(ctx, digest, NULL);
	EVP_MD_CTX_free(ctx);
	return ok;
}

enum gp_status gp_weights_sha256(const struct gp_weights *w, char hex[GP_SHA256_HEX], struct gp_err *err)
{
	unsigned char digest[EVP_MAX_MD_SIZE];
	const struct gp_graph *g = w->graph;
	struct named *list;
	GP_TRY(gp_alloc_array((void **)&list, (size_t)g->params, sizeof *list, err));
	for (int i = 0; i < g->params; i++)
		list[i] = (struct named){g->param[i].name, w->value[i], g->param[i].count * sizeof(float)};
	qsort(list, (size_t)g->params, sizeof *list, by_name);
	bool ok = hash(list, g->params, digest);
	gp_free(list);
	if (!ok)
		GP_FAIL(err, GP_INTERNAL, "SHA-256 failed");
	for (int i = 0; i < GP_SHA256_HEX / 2; i++)
		snprintf(hex + 2 * i, 3, "%02x", digest[i]);
	return GP_OK;
}
