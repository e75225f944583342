/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of models, and what their builders in model_*.c share.
 * Test: tests/unit/test_models.c
 */
#include "client/models/models.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "client/models/models_internal.h"

#define RESNET_OPTIONS       "width=1.0,stem=imagenet|cifar,classes=N,cuts=blocks|fine"
#define CIFAR_RESNET_OPTIONS "width=1.0,classes=N,cuts=blocks|fine"
#define ENCODER_OPTIONS(max)                                                                                           \
	"layers=12,dim=768,heads=12,ffn=3072,vocab=V,max=" max                                                         \
	",classes=2,lm=0|1,tokens=S,dropout=0.1,attention_dropout=0.1,"                                                \
	"cuts=blocks|fine"

static const struct {
	struct gp_model_info info;
	gp_model_builder build;
} models[] = {
	{{"cnn", "five convolutions in three stages, for small images", "width=32,classes=N"}, gp_model_cnn},
	{{"fasttext", "averaged word embeddings and two layers, for tokens with a mask",
	  "dim=64,hidden=64,tokens=S,vocab=V,classes=K"},
	 gp_model_fasttext},
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
	{{"bert",
	  "BERT with a pooler, for texts and pairs of texts; lm=1: masked words; Hugging Face's parameter names",
	  ENCODER_OPTIONS("512")},
	 gp_model_encoder},
	{{"roberta", "RoBERTa, for texts and pairs of texts; lm=1: masked words; Hugging Face's parameter names",
	  ENCODER_OPTIONS("514")},
	 gp_model_encoder},
};

#define MODELS ((int)(sizeof models / sizeof models[0]))

const struct gp_model_info *gp_model_info(int index)
{
	return index >= 0 && index < MODELS ? &models[index].info : NULL;
}

/* --- options ---------------------------------------------------------------------------------------------------- */

static void note_settled(struct gp_model_args *a, const char *key, const char *value)
{
	const size_t n = strlen(a->settled);
	const char *before = strchr(a->settled, ':') ? "," : ":";
	gp_require(n + strlen(key) + strlen(value) + 3 <=
		   sizeof a->settled); /* models have few options, and short ones */
	snprintf(a->settled + n, sizeof a->settled - n, "%s%s=%s", before, key, value);
}

enum gp_status gp_model_arg_int(struct gp_model_args *a, const char *key, int min, int max, int *value,
				struct gp_err *err)
{
	int64_t v = *value;
	char text[24];
	GP_TRY(gp_spec_int(&a->spec, key, min, max, &v, err));
	*value = (int)v;
	snprintf(text, sizeof text, "%d", *value);
	note_settled(a, key, text);
	return GP_OK;
}

enum gp_status gp_model_arg_real(struct gp_model_args *a, const char *key, double min, double max, double *value,
				 struct gp_err *err)
{
	char text[40];
	GP_TRY(gp_spec_real(&a->spec, key, min, max, value, err));
	for (int digits = 6; digits <= 17; digits++) { /* as many as it takes to read back the same */
		snprintf(text, sizeof text, "%.*g", digits, *value);
		if (strtod(text, NULL) == *value)
			break;
	}
	note_settled(a, key, text);
	return GP_OK;
}

enum gp_status gp_model_arg_choice(struct gp_model_args *a, const char *key, const char *choices, int *value,
				   struct gp_err *err)
{
	struct gp_text rest = gp_text_of(choices), word = {0};
	char text[40];
	GP_TRY(gp_spec_choice(&a->spec, key, choices, value, err));
	for (int i = 0; i <= *value; i++)
		gp_text_cut(&rest, '|', &word);
	snprintf(text, sizeof text, "%.*s", (int)word.len, word.at);
	note_settled(a, key, text);
	return GP_OK;
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
		GP_FAIL(err, GP_INVALID, "model %s takes images (height, width, channels), not %s%s", a->info->name,
			value->ndim == 1 ? "texts or other rows of numbers, here of " : "samples of ",
			gp_shape_text(value, text, sizeof text));
	a->image = true;
	return GP_OK;
}

static enum gp_status take_data_tokens(const struct gp_model_args *a, int *length, int *vocab, struct gp_err *err)
{
	char text[64];
	const struct gp_shape *s = &a->defaults.input;
	if (s->ndim == 0)
		return GP_OK;
	if (s->ndim != 1)
		GP_FAIL(err, GP_INVALID, "model %s takes tokens (a row of numbers), not samples of %s", a->info->name,
			gp_shape_text(s, text, sizeof text));
	if (s->dim[0] > GP_SHAPE_SIDE_MAX || a->defaults.values > INT32_MAX)
		GP_FAIL(err, GP_INVALID, "model %s: %lld tokens of %lld values are too many", a->info->name,
			(long long)s->dim[0], (long long)a->defaults.values);
	*length = (int)s->dim[0];
	*vocab = a->defaults.values ? (int)a->defaults.values : *vocab;
	return GP_OK;
}

enum gp_status gp_model_arg_tokens(struct gp_model_args *a, int *length, int *vocab, struct gp_err *err)
{
	GP_TRY(take_data_tokens(a, length, vocab, err));
	GP_TRY(gp_model_arg_int(a, "tokens", 1, GP_SHAPE_SIDE_MAX, length, err));
	return gp_model_arg_int(a, "vocab", 1, 1 << 24, vocab, err);
}

enum gp_status gp_model_args_done(const struct gp_model_args *a, struct gp_err *err)
{
	return gp_spec_done(&a->spec, err);
}

const char *gp_model_name(char name[GP_NAME_MAX], const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(name, GP_NAME_MAX, fmt, ap);
	va_end(ap);
	return name;
}

int gp_model_begin_fine(struct gp_graph *g, bool fine, const char *name, int x, struct gp_err *err)
{
	if (x < 0 || !fine)
		return x;
	return gp_graph_begin_block(g, name, err) == GP_OK ? x : -1;
}

int gp_model_begin_act(struct gp_graph *g, bool fine, const char *block, int x, struct gp_err *err)
{
	char name[GP_NAME_MAX];
	return gp_model_begin_fine(g, fine, gp_model_name(name, "%s.act", block), x, err);
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

static enum gp_status fail_unknown(const struct gp_spec *spec, struct gp_err *err)
{
	const char *names[MODELS];
	for (int i = 0; i < MODELS; i++)
		names[i] = models[i].info.name;
	return gp_spec_unknown(spec, "model", names, MODELS, err);
}

/* Says which input did not fit, where the graph only knows the node that refused it. */
static enum gp_status prefix_input(const struct gp_model_args *a, struct gp_err *err)
{
	const struct gp_shape *s = &a->defaults.input;
	if (err->code != GP_INVALID || !a->image || s->ndim != 3)
		return err->code;
	return gp_err_prefix(err, "model %s does not fit %lldx%lld images with %lld channels", a->info->name,
			     (long long)s->dim[0], (long long)s->dim[1], (long long)s->dim[2]);
}

enum gp_status gp_model_build(const char *spec, const struct gp_model_options *defaults, struct gp_graph **out,
			      struct gp_err *err)
{
	char settled[GP_MODEL_SPEC];
	return gp_model_build_settled(spec, defaults, out, settled, err);
}

enum gp_status gp_model_build_settled(const char *spec, const struct gp_model_options *defaults, struct gp_graph **out,
				      char settled[GP_MODEL_SPEC], struct gp_err *err)
{
	struct gp_model_args a = {0};
	char where[48];
	gp_spec_begin(&a.spec, gp_text_of(spec));
	for (int i = 0; i < MODELS; i++) {
		a.info = &models[i].info;
		if (!gp_text_is(a.spec.name, a.info->name))
			continue;
		if (defaults)
			a.defaults = *defaults;
		snprintf(where, sizeof where, "model %s", a.info->name);
		GP_TRY(gp_spec_pairs(&a.spec, where, GP_SPEC_NO_ARG, a.info->options, err));
		snprintf(a.settled, sizeof a.settled, "%s", a.info->name);
		if (models[i].build(&a, out, err) != GP_OK)
			return prefix_input(&a, err);
		memcpy(settled, a.settled, sizeof a.settled);
		return GP_OK;
	}
	return fail_unknown(&a.spec, err);
}
