/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of models and the parser of "name:key=value,...". Builders are in
 * model_*.c. Test: tests/unit/test_models.c
 */
#include "client/models/models.h"

#include <stdarg.h>
#include <string.h>

#include "client/models/models_internal.h"
#include "common/options/options.h"

#define RESNET_OPTIONS       "width=1.0,stem=imagenet|cifar,classes=N,cuts=blocks|fine"
#define CIFAR_RESNET_OPTIONS "width=1.0,classes=N,cuts=blocks|fine"

static const struct {
	struct gp_model_info info;
	gp_model_builder build;
} models[] = {
	{{"cnn", "five convolutions in three stages, for small images", "width=32,classes=N"}, gp_model_cnn},
	{{"mobilenetv2", "MobileNetV2 with torchvision's parameter names",
	  "width=1.0,stem=imagenet|cifar,classes=N,dropout=0.2,pad=torch|same,eps=1e-5,cuts=blocks|fine"},
	 gp_model_mobilenetv2},
	{{"resnet18", "ResNet-18 with torchvision's parameter names", RESNET_OPTIONS}, gp_model_resnet},
	{{"resnet34", "ResNet-34 with torchvision's parameter names", RESNET_OPTIONS}, gp_model_resnet},
	{{"resnet20", "ResNet-20 for 32x32 images, shortcuts without parameters", CIFAR_RESNET_OPTIONS},
	 gp_model_resnet},
	{{"resnet32", "ResNet-32 for 32x32 images", CIFAR_RESNET_OPTIONS}, gp_model_resnet},
	{{"resnet44", "ResNet-44 for 32x32 images", CIFAR_RESNET_OPTIONS}, gp_model_resnet},
	{{"resnet56", "ResNet-56 for 32x32 images", CIFAR_RESNET_OPTIONS}, gp_model_resnet},
	{{"vgg13", "VGG-13 with batch norm and torchvision's parameter names; hidden=0 for small images",
	  "width=1.0,hidden=4096,classes=N,dropout=0.5,cuts=blocks|fine"},
	 gp_model_vgg13},
};

#define MODELS ((int)(sizeof models / sizeof models[0]))

const struct gp_model_info *gp_model_info(int index)
{
	return index >= 0 && index < MODELS ? &models[index].info : NULL;
}

/* --- options ---------------------------------------------------------------------------------------------------- */

static enum gp_status split_one(struct gp_model_args *a, const char *text, size_t len, struct gp_err *err)
{
	const char *eq = memchr(text, '=', len);
	size_t key = eq ? (size_t)(eq - text) : 0, value = eq ? len - key - 1 : 0;
	if (key == 0 || value == 0 || key >= sizeof a->arg[0].key || value >= sizeof a->arg[0].value)
		GP_FAIL(err, GP_USAGE, "model %s: '%.*s' is not key=value (options: %s)", a->info->name,
			len < 40 ? (int)len : 40, text, a->info->options);
	for (int i = 0; i < a->count; i++)
		if (strncmp(a->arg[i].key, text, key) == 0 && a->arg[i].key[key] == '\0')
			GP_FAIL(err, GP_USAGE, "model %s: %s is given twice", a->info->name, a->arg[i].key);
	if (a->count == GP_MODEL_MAX_ARGS)
		GP_FAIL(err, GP_USAGE, "model %s: more than %d options", a->info->name, GP_MODEL_MAX_ARGS);
	memcpy(a->arg[a->count].key, text, key);
	memcpy(a->arg[a->count].value, eq + 1, value);
	a->count++;
	return GP_OK;
}

static enum gp_status split_args(struct gp_model_args *a, const char *text, struct gp_err *err)
{
	for (;;) {
		size_t len = strcspn(text, ",");
		GP_TRY(split_one(a, text, len, err));
		if (text[len] == '\0')
			return GP_OK;
		text += len + 1;
	}
}

static const char *take(struct gp_model_args *a, const char *key)
{
	for (int i = 0; i < a->count; i++) {
		if (strcmp(a->arg[i].key, key) == 0) {
			a->arg[i].used = true;
			return a->arg[i].value;
		}
	}
	return NULL;
}

enum gp_status gp_model_arg_int(struct gp_model_args *a, const char *key, int min, int max, int *value,
				struct gp_err *err)
{
	const char *text = take(a, key);
	int64_t v;
	if (!text)
		return GP_OK;
	if (!gp_parse_i64(text, &v) || v < min || v > max)
		GP_FAIL(err, GP_USAGE, "model %s: %s=%s must be a whole number in %d..%d", a->info->name, key, text,
			min, max);
	*value = (int)v;
	return GP_OK;
}

enum gp_status gp_model_arg_real(struct gp_model_args *a, const char *key, double min, double max, double *value,
				 struct gp_err *err)
{
	const char *text = take(a, key);
	double v;
	if (!text)
		return GP_OK;
	if (!gp_parse_real(text, &v) || !(v >= min && v <= max))
		GP_FAIL(err, GP_USAGE, "model %s: %s=%s must be a number in %g..%g", a->info->name, key, text, min,
			max);
	*value = v;
	return GP_OK;
}

enum gp_status gp_model_arg_choice(struct gp_model_args *a, const char *key, const char *choices, int *value,
				   struct gp_err *err)
{
	const char *text = take(a, key);
	if (!text)
		return GP_OK;
	int index = 0;
	for (const char *at = choices;; index++) {
		size_t len = strcspn(at, "|");
		if (strlen(text) == len && memcmp(text, at, len) == 0) {
			*value = index;
			return GP_OK;
		}
		if (at[len] == '\0')
			break;
		at += len + 1;
	}
	GP_FAIL(err, GP_USAGE, "model %s: %s=%s must be one of %s", a->info->name, key, text, choices);
}

enum gp_status gp_model_arg_classes(struct gp_model_args *a, int fallback, int *value, struct gp_err *err)
{
	*value = a->defaults.classes ? a->defaults.classes : fallback;
	return gp_model_arg_int(a, "classes", 1, 1 << 20, value, err);
}

enum gp_status gp_model_arg_cuts(struct gp_model_args *a, int *fine, struct gp_err *err)
{
	*fine = 0;
	return gp_model_arg_choice(a, "cuts", "blocks|fine", fine, err);
}

enum gp_status gp_model_arg_input(struct gp_model_args *a, struct gp_shape fallback, struct gp_shape *value,
				  struct gp_err *err)
{
	char text[64];
	*value = a->defaults.input.ndim ? a->defaults.input : fallback;
	if (value->ndim != 3)
		GP_FAIL(err, GP_INVALID, "model %s takes images (height, width, channels), not samples of %s",
			a->info->name, gp_shape_text(value, text, sizeof text));
	return GP_OK;
}

enum gp_status gp_model_args_done(const struct gp_model_args *a, struct gp_err *err)
{
	for (int i = 0; i < a->count; i++)
		if (!a->arg[i].used)
			GP_FAIL(err, GP_USAGE, "model %s has no option '%s' (options: %s)", a->info->name,
				a->arg[i].key, a->info->options);
	return GP_OK;
}

const char *gp_model_name(char name[GP_NAME_MAX], const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(name, GP_NAME_MAX, fmt, ap);
	va_end(ap);
	return name;
}

int gp_model_begin_act(struct gp_graph *g, bool fine, const char *block, int x, struct gp_err *err)
{
	char name[GP_NAME_MAX];
	if (x < 0 || !fine)
		return x;
	return gp_graph_begin_block(g, gp_model_name(name, "%s.act", block), err) == GP_OK ? x : -1;
}

/* --- starting values -------------------------------------------------------------------------------------------- */

static void init_role(struct gp_graph *g, int node, enum gp_param_role role, enum gp_init_kind kind, float scale)
{
	if (node < 0)
		return;
	const struct gp_node *n = &g->node[node];
	for (int i = 0; i < n->params; i++) {
		struct gp_param *p = &g->param[n->first_param + i];
		if (p->role == role) {
			p->init = kind;
			p->init_scale = scale;
		}
	}
}

void gp_model_init_weight(struct gp_graph *g, int node, enum gp_init_kind kind, float scale)
{
	init_role(g, node, GP_PARAM_WEIGHT, kind, scale);
}

void gp_model_init_bias(struct gp_graph *g, int node, enum gp_init_kind kind, float scale)
{
	init_role(g, node, GP_PARAM_BIAS, kind, scale);
}

/* --- building --------------------------------------------------------------------------------------------------- */

static enum gp_status fail_unknown(const char *spec, size_t len, struct gp_err *err)
{
	const char *names[MODELS];
	char list[200] = "", word[41];
	for (int i = 0; i < MODELS; i++) {
		size_t used = strlen(list);
		snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", models[i].info.name);
		names[i] = models[i].info.name;
	}
	snprintf(word, sizeof word, "%.*s", len < 40 ? (int)len : 40, spec);
	const char *near = gp_nearest_name(word, names, MODELS);
	if (near)
		GP_FAIL(err, GP_USAGE, "no model is named '%s'; did you mean %s? There are: %s", word, near, list);
	GP_FAIL(err, GP_USAGE, "no model is named '%s'; there are: %s", word, list);
}

/* Says which input did not fit, where the graph only knows the node that refused it. */
static enum gp_status prefix_input(const struct gp_model_args *a, struct gp_err *err)
{
	const struct gp_shape *s = &a->defaults.input;
	if (err->code != GP_INVALID || s->ndim != 3)
		return err->code;
	return gp_err_prefix(err, "model %s does not fit %lldx%lld images with %lld channels", a->info->name,
			     (long long)s->dim[0], (long long)s->dim[1], (long long)s->dim[2]);
}

enum gp_status gp_model_build(const char *spec, const struct gp_model_options *defaults, struct gp_graph **out,
			      struct gp_err *err)
{
	size_t len = strcspn(spec, ":");
	for (int i = 0; i < MODELS; i++) {
		struct gp_model_args a = {.info = &models[i].info};
		if (strlen(a.info->name) != len || memcmp(a.info->name, spec, len) != 0)
			continue;
		if (defaults)
			a.defaults = *defaults;
		if (spec[len] == ':')
			GP_TRY(split_args(&a, spec + len + 1, err));
		if (models[i].build(&a, out, err) != GP_OK)
			return prefix_input(&a, err);
		return GP_OK;
	}
	return fail_unknown(spec, len, err);
}
