/* SPDX-License-Identifier: Apache-2.0
 *
 * Parameter values in host memory, see weights.h. The file format is
 * safetensors.c's business. Test: tests/unit/test_weights.c
 */
#include "common/weights.h"

#include <openssl/evp.h>
#include <string.h>

#include "common/mem.h"
#include "common/safetensors.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "values are hashed in place, as little-endian");

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

void gp_weights_free(struct gp_weights *w)
{
	if (!w)
		return;
	for (int i = 0; w->value && i < w->graph->params; i++)
		gp_free(w->value[i]);
	gp_free(w->value);
	gp_free(w);
}

void gp_weights_init(struct gp_weights *w, uint64_t seed)
{
	for (int i = 0; i < w->graph->params; i++)
		gp_param_init(&w->graph->param[i], seed, w->value[i]);
}

/* --- loading ---------------------------------------------------------------------------------------------------- */

/* Room that is kept for " and N more". */
#define MORE_ROOM 24

/* Adds a name to "a, b"; what no longer fits is only counted, by end_list. */
static void add_to_list(char *list, size_t size, int *count, int *listed, const char *name)
{
	size_t used = strlen(list), need = strlen(name) + (used ? 2 : 0);
	if (*listed == *count && used + need + MORE_ROOM < size) {
		snprintf(list + used, size - used, "%s%s", used ? ", " : "", name);
		++*listed;
	}
	++*count;
}

static void end_list(char *list, size_t size, int count, int listed)
{
	size_t used = strlen(list);
	if (listed < count)
		snprintf(list + used, size - used, "%s%d more", used ? " and " : "", count - listed);
}

static bool passed_over(const char *name)
{
	static const char suffix[] = "num_batches_tracked";
	size_t len = strlen(name), tail = sizeof suffix - 1;
	return len >= tail && strcmp(name + len - tail, suffix) == 0;
}

static void compare_names(const struct gp_graph *g, const struct gp_st_file *f, struct gp_weights_report *r)
{
	int listed = 0;
	*r = (struct gp_weights_report){0};
	for (int i = 0; i < g->params; i++)
		if (!gp_st_find(f, g->param[i].name))
			add_to_list(r->missing_names, sizeof r->missing_names, &r->missing, &listed, g->param[i].name);
	end_list(r->missing_names, sizeof r->missing_names, r->missing, listed);
	listed = 0;
	for (int i = 0; i < gp_st_count(f); i++) {
		const char *name = gp_st_at(f, i)->name;
		if (gp_graph_find_param(g, name) < 0 && !passed_over(name))
			add_to_list(r->unexpected_names, sizeof r->unexpected_names, &r->unexpected, &listed, name);
	}
	end_list(r->unexpected_names, sizeof r->unexpected_names, r->unexpected, listed);
	r->loaded = g->params - r->missing;
}

static enum gp_status check_tensor(const struct gp_param *p, const struct gp_st_tensor *t, struct gp_err *err)
{
	char has[64], wants[64];
	if (!gp_shape_equal(&p->shape, &t->shape))
		GP_FAIL(err, GP_INVALID, "%s: file has %s, model wants %s", p->name,
			t->shape.ndim ? gp_shape_text(&t->shape, has, sizeof has) : "a scalar",
			gp_shape_text(&p->shape, wants, sizeof wants));
	if (t->dtype == GP_I32 || t->dtype == GP_I64 || t->dtype == GP_U8)
		GP_FAIL(err, GP_INVALID, "%s: file has integers, model wants real numbers", p->name);
	return GP_OK;
}

static enum gp_status check_file(const struct gp_graph *g, const struct gp_st_file *f, bool strict,
				 const struct gp_weights_report *r, struct gp_err *err)
{
	for (int i = 0; i < g->params; i++) {
		const struct gp_st_tensor *t = gp_st_find(f, g->param[i].name);
		if (t)
			GP_TRY(check_tensor(&g->param[i], t, err));
	}
	if (r->loaded == 0)
		GP_FAIL(err, GP_INVALID, "no parameter of %s is in the file; it has: %s", g->name,
			r->unexpected ? r->unexpected_names : "nothing");
	if (strict && r->missing)
		GP_FAIL(err, GP_INVALID, "%d parameters of %s are missing: %s", r->missing, g->name, r->missing_names);
	if (strict && r->unexpected)
		GP_FAIL(err, GP_INVALID, "%d tensors are none of %s's: %s", r->unexpected, g->name,
			r->unexpected_names);
	return GP_OK;
}

enum gp_status gp_weights_load(struct gp_weights *w, const char *path, bool strict, struct gp_weights_report *report,
			       struct gp_err *err)
{
	struct gp_weights_report own, *r = report ? report : &own;
	struct gp_st_file *f;
	const struct gp_graph *g = w->graph;
	GP_TRY(gp_st_open(path, &f, err));
	compare_names(g, f, r);
	if (check_file(g, f, strict, r, err) != GP_OK) {
		gp_st_close(f);
		return gp_err_prefix(err, "%s", path);
	}
	for (int i = 0; i < g->params; i++) {
		const struct gp_st_tensor *t = gp_st_find(f, g->param[i].name);
		if (t) /* cannot fail: check_tensor has seen its type */
			gp_require(gp_st_read_f32(t, w->value[i], err) == GP_OK);
	}
	gp_st_close(f);
	return GP_OK;
}

/* --- saving and hashing ----------------------------------------------------------------------------------------- */

enum gp_status gp_weights_save(const struct gp_weights *w, const char *path, struct gp_err *err)
{
	const struct gp_graph *g = w->graph;
	const struct gp_st_pair meta[] = {{"format", "pt"}, {"model", g->name}};
	struct gp_st_item *items;
	GP_TRY(gp_alloc_array((void **)&items, (size_t)g->params, sizeof *items, err));
	for (int i = 0; i < g->params; i++)
		items[i] = (struct gp_st_item){g->param[i].name, g->param[i].shape, w->value[i]};
	enum gp_status status = gp_st_write(path, items, g->params, meta, 2, err);
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
