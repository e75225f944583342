/* SPDX-License-Identifier: Apache-2.0
 *
 * Property: any text for --insert, which saved weights may hold, too, gives
 * layers whose text gives the same layers again, or one line of error
 * (client/insert/insert_spec.h); and layers that fit a map or a sequence give it back in
 * its shape (client/insert/insert.h). Input: the text.
 */
#include <stdlib.h>
#include <string.h>

#include "client/insert/insert.h"
#include "common/base/mem.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_shape(const struct gp_insert_spec *s, struct gp_shape shape)
{
	struct gp_insertion ins = {.end[GP_INSERT_UP] = {.flag = "insert-up", .spec = *s, .plain = shape}};
	struct gp_graph *g = NULL;
	struct gp_err err = {0};
	if (gp_insert_alone(&ins, GP_INSERT_UP, s->sets, true, &g, &err) == GP_OK) {
		gp_require(gp_shape_equal(gp_graph_output_shape(g), &shape));
		gp_graph_free(g);
	} else {
		gp_require(!g && err.text[0]);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct gp_insert_spec s = {0}, again = {0};
	struct gp_err err = {0};
	char settled[GP_INSERT_TEXT], once_more[GP_INSERT_TEXT], *text = strndup((const char *)data, size);
	gp_require(text);
	if (gp_insert_spec_parse(text, "insert-up", GP_INSERT_UP, &s, &err) != GP_OK) {
		gp_require(err.code == GP_USAGE && err.text[0] && s.sets == 0);
	} else {
		gp_require(gp_insert_spec_parse(gp_insert_spec_text(&s, settled), "insert-up", GP_INSERT_UP, &again,
						&err) == GP_OK);
		gp_require(strcmp(settled, gp_insert_spec_text(&again, once_more)) == 0);
		if (s.sets > 0) {
			try_shape(&s, (struct gp_shape){.ndim = 3, .dim = {13, 8, 5}});
			try_shape(&s, (struct gp_shape){.ndim = 2, .dim = {11, 6}});
			try_shape(&s, (struct gp_shape){.ndim = 1, .dim = {7}});
		}
	}
	free(text);
	return 0;
}
