/* SPDX-License-Identifier: Apache-2.0
 *
 * The text of --insert, --insert-up and --insert-down: which trainable layers are
 * put at a cut, as sets that are applied one after the other. Each set has an
 * encoder on the sender and its mirror, the decoder, on the receiver. Not here:
 * the layers in a graph (insert.h).
 *
 *     spec   := "none" | PRESET | set *( "/" set )
 *     set    := conv:out=N,k=K,s=S[,p=P][,bn=1][,act=relu|relu6][,bias=0][,start=random|pca]
 *             | linear:rank=R,dim=feature|sequence[,start=random|identity|pca]
 *             | decay:rate=X,every=N,times=N,dim=feature|sequence[,l1=X]      (linear; common/graph/decay.h)
 *             | bottleneck:dim=D[,hidden=H][,act=gelu|relu|relu6][,start=identity|random|pca]
 *     PRESET := origin-0 ... origin-7 | flop-2 | flop-3 | rate-070    (of MobileNetV2, both cuts)
 *
 * Threads: any; pure functions. Test: tests/unit/test_insert_spec.c
 */
#ifndef GP_INSERT_SPEC_H
#define GP_INSERT_SPEC_H

#include "common/base/status.h"

#define GP_INSERT_SETS 4   /* in one spec */
#define GP_INSERT_TEXT 512 /* of a spec, its end included */
#define GP_INSERT_CHOICES                                                                                              \
	"none, conv:out=N,k=K,s=S, linear:rank=R,dim=feature|sequence, decay:rate=X,every=N,times=N,dim=..., "         \
	"bottleneck:dim=D, several of these with / between, or a preset (origin-0)"

enum gp_insert_end { GP_INSERT_UP, GP_INSERT_DOWN, GP_INSERT_ENDS };
enum gp_insert_kind { GP_INSERT_CONV, GP_INSERT_LINEAR, GP_INSERT_DECAY, GP_INSERT_BOTTLENECK };
enum gp_insert_act { GP_INSERT_NO_ACT, GP_INSERT_RELU, GP_INSERT_RELU6, GP_INSERT_GELU };
enum gp_insert_dim { GP_INSERT_FEATURE, GP_INSERT_SEQUENCE };
enum gp_insert_start { GP_INSERT_RANDOM, GP_INSERT_IDENTITY, GP_INSERT_PCA };

struct gp_insert_set {
	enum gp_insert_kind kind;
	/* conv: channels, kernel, stride and padding of the sender's convolution; the mirror's are alike. Batch norm and
	 * activation stand behind each layer but the receiver's last. `start` is that of linear, but never identity; pca only
	 * where patches do not overlap and nothing stands behind the layers. */
	int out, kernel, stride, pad;
	bool batch_norm, bias;
	enum gp_insert_act act;
	/* linear */
	int rank;
	enum gp_insert_dim dim;
	enum gp_insert_start start;
	/* decay, with `dim` of linear; settled: its rank is that after `steps` steps and does not change any more, and
	 * gp_insert makes a linear set of it */
	double rate;
	int every, times;
	float l1;
	bool settled;
	uint64_t steps;
	/* bottleneck, with `rank` (of its straight path, and so of what crosses), `dim` (features) and `start` of linear, and
	 * `act`: what its residual branch has between its two layers */
	int hidden;
};

/* Zeroed: none. */
struct gp_insert_spec {
	int sets;
	struct gp_insert_set set[GP_INSERT_SETS];
};

extern const char *const gp_insert_end_name[GP_INSERT_ENDS]; /* "up", "down" */

/* `flag` begins every error, without its dashes; a preset gives what it has for `end`. GP_USAGE. */
enum gp_status gp_insert_spec_parse(const char *text, const char *flag, enum gp_insert_end end,
				    struct gp_insert_spec *out, struct gp_err *err);
/* With the keys' values, but for the defaults of conv and linear that will stay, so that the text means the same if a default
 * changes; "none". Returns text. */
const char *gp_insert_spec_text(const struct gp_insert_spec *s, char text[GP_INSERT_TEXT]);
/* Whether layers of one have the shapes of the other's and compute the same with them, but for ranks; starts do not count, and
 * decay is linear. */
bool gp_insert_specs_alike(const struct gp_insert_spec *a, const struct gp_insert_spec *b);
/* Presets by index: name and the text for each end. False past the end. */
bool gp_insert_preset(int index, const char **name, const char *spec[GP_INSERT_ENDS]);

#endif
