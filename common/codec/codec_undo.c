/* SPDX-License-Identifier: Apache-2.0
 *
 * Taking an instance's state back to where the step under way began: a link
 * was cut, and both ends will do the step again. A chunk's state is copied
 * before its first pass of a step, or by a stage that reads it anyway; one whose
 * state is not by chunk keeps a journal of its own. Not here: masks. Those of an activation are written
 * anew before its gradient looks at them, in whichever step.
 * Test: tests/unit/test_codec_undo.c
 */
#include "common/codec/codec_chain.h"

/* Copies what the node's regions hold of a chunk, to its backup or back. */
static void copy_chunk(const struct gp_codec_tree *t, const struct gp_codec_node *node, uint32_t chunk, bool back)
{
	struct gp_codec_region region[GP_CODEC_MAX_REGIONS];
	const int count = node->ops->regions ? node->ops->regions(node->state, region) : 0;
	for (int r = 0; r < count; r++) {
		const size_t piece = region[r].bytes / t->chunks;
		if (region[r].backup)
			gp_codec_region_back_up(t->inside, t->site, &region[r], chunk * piece, piece, back);
	}
}

void gp_codec_tree_back_up(struct gp_codec_tree *t, const struct gp_codec_pass *pass)
{
	if (!t->begun || pass->eval)
		return;
	struct gp_codec_begun *b = &t->begun[pass->chunk];
	if (b->backed_up && b->step == pass->step)
		return;
	for (int i = 0; i < t->nodes; i++) {
		if (t->node[i].ops->back_up)
			t->node[i].ops->back_up(t->node[i].state);
		else
			copy_chunk(t, &t->node[i], pass->chunk, false);
	}
	*b = (struct gp_codec_begun){.step = pass->step, .backed_up = true};
}

void gp_codec_tree_undo(struct gp_codec_tree *t, uint64_t step)
{
	for (uint32_t c = 0; t->begun && c < t->chunks; c++) {
		if (!t->begun[c].backed_up || t->begun[c].step != step)
			continue;
		for (int i = 0; i < t->nodes; i++)
			copy_chunk(t, &t->node[i], c, true);
		t->begun[c].backed_up = false;
	}
	for (int i = 0; t->begun && i < t->nodes; i++)
		if (t->node[i].ops->undo)
			t->node[i].ops->undo(t->node[i].state, step);
}

void gp_codec_tree_forget(struct gp_codec_tree *t)
{
	for (uint32_t c = 0; t->begun && c < t->chunks; c++)
		t->begun[c].backed_up = false;
}

void gp_codec_undo(struct gp_codec *c, uint64_t step)
{
	gp_codec_tree_undo(&c->tree, step);
	gp_codec_tree_undo(&c->other, step);
}
