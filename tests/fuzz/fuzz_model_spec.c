/* SPDX-License-Identifier: Apache-2.0
 *
 * Property: any text for --model and --cut gives a graph and a cut within it,
 * or one line of error (client/models/models.h, gp_cut_parse). Input: the model, a
 * line feed, the cut.
 */
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "client/models/models.h"
#include "common/graph/graph_part.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct gp_model_options options = {.classes = 10};
	struct gp_graph *g = NULL;
	struct gp_cut cut;
	struct gp_err err = {0};
	char *text = strndup((const char *)data, size), *rest = text;
	const char *model = strsep(&rest, "\n");
	gp_require(text);
	if (gp_model_build(model, &options, &g, &err) != GP_OK) {
		gp_require(!g && err.text[0]);
		free(text);
		return 0;
	}
	if (gp_cut_parse(g, rest ? rest : "", &cut, &err) == GP_OK)
		gp_require(cut.head >= 1 && cut.head < cut.tail && cut.tail < g->blocks);
	else
		gp_require(err.code == GP_USAGE && err.text[0]);
	gp_graph_free(g);
	free(text);
	return 0;
}
