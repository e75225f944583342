/* SPDX-License-Identifier: Apache-2.0
 *
 * See job_insert.h. Test: tests/e2e/insert.sh
 */
#include "client/job/job_insert.h"

#include "client/insert/insert_pca.h"
#include "client/models/models.h"
#include "common/base/log.h"
#include "common/base/threads.h"

enum gp_status gp_job_plain_graph(const struct gp_job *j, const struct gp_dataset *d, struct gp_graph **out,
				  struct gp_err *err)
{
	const struct gp_model_options o = {.classes = gp_dataset_classes(d),
					   .input = *gp_dataset_shape(d),
					   .values = gp_dataset_tensor_info(d)[0].values};
	return gp_model_build(j->model, &o, out, err);
}

enum gp_status gp_job_draw_weights(struct gp_job *j, struct gp_err *err)
{
	if (j->init)
		return GP_OK;
	GP_TRY(gp_weights_new(j->graph, &j->init, err));
	gp_weights_init(j->init, (uint64_t)j->set->seed);
	return GP_OK;
}

struct gp_insert_source gp_job_insert_source(const struct gp_job *j, const struct gp_graph *plain,
					     struct gp_loader *loader)
{
	return (struct gp_insert_source){.plain = plain,
					 .cut = &j->cut,
					 .ins = &j->insertion,
					 .weights = j->init,
					 .device = j->set->device,
					 .threads = gp_threads_count(j->set->threads),
					 .batch = (int)j->set->batch,
					 .seed = (uint64_t)j->set->seed,
					 .loader = loader};
}

static bool is_due(const struct gp_job *j, int end)
{
	return !j->insertion_loaded[end] && gp_insert_wants_pca(&j->insertion.end[end]);
}

/* The loader's own order, from its beginning: the same samples in every run of this seed. */
static enum gp_status start(struct gp_job *j, const struct gp_graph *plain, struct gp_loader *loader,
			    struct gp_err *err)
{
	for (int e = 0; e < GP_INSERT_ENDS; e++) {
		const struct gp_insert_source from = gp_job_insert_source(j, plain, loader);
		if (is_due(j, e))
			GP_TRY(gp_insert_pca(&from, (enum gp_insert_end)e, err));
	}
	return GP_OK;
}

enum gp_status gp_job_start_insertions(struct gp_job *j, struct gp_dataset *d, struct gp_err *err)
{
	struct gp_loader *loader = NULL;
	struct gp_graph *plain;
	if (!is_due(j, GP_INSERT_UP) && !is_due(j, GP_INSERT_DOWN))
		return GP_OK;
	GP_TRY(gp_job_draw_weights(j, err));
	GP_TRY(gp_job_plain_graph(j, d, &plain, err));
	enum gp_status status = gp_job_open_loader(j, d, GP_SPLIT_TRAIN, &loader, err);
	if (status == GP_OK)
		status = start(j, plain, loader, err);
	gp_loader_free(loader);
	gp_graph_free(plain);
	return status;
}

enum gp_status gp_job_check_started(const struct gp_job *j, const char *command, struct gp_err *err)
{
	for (int e = 0; e < GP_INSERT_ENDS; e++)
		if (is_due(j, e))
			GP_FAIL(err, GP_USAGE,
				"--%s: start=pca finds weights in a pass over training data, which %s does not make: "
				"'gpclient insert-fit --steps 0 --save FILE' makes it, and %s --init FILE takes them",
				j->insertion.end[e].flag, command, command);
	return GP_OK;
}

void gp_job_warn_of_ranks(const struct gp_job *j, uint64_t steps)
{
	for (int i = 0; i < j->session.decays.count; i++) {
		const struct gp_decay *d = &j->session.decays.decay[i];
		const uint64_t changes = steps / d->every;
		if (changes < d->times)
			gp_log(model, GP_LOG_WARN,
			       "the rank of %s is to change %u times, every %u steps; in a training of %llu steps it "
			       "changes "
			       "%llu times",
			       d->encoder, d->times, d->every, (unsigned long long)steps, (unsigned long long)changes);
	}
}
