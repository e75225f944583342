/* SPDX-License-Identifier: Apache-2.0
 *
 * See labels.h. Test: tests/unit/test_labels.c
 */
#include "client/engine/labels.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "common/base/mem.h"

enum { LABEL_MAX = 256 }; /* bytes of a line */

static enum gp_status add_label(struct gp_labels *l, const char *name, struct gp_err *err)
{
	l->name[l->count] = gp_strdup(name);
	if (!l->name[l->count])
		GP_FAIL(err, GP_NOMEM, "out of memory for labels");
	l->count++;
	return GP_OK;
}

static void trim_end(char *line)
{
	size_t n = strlen(line);
	while (n > 0 && isspace((unsigned char)line[n - 1]))
		line[--n] = '\0';
}

/* Names beyond `outputs` are counted, not kept. */
static enum gp_status read_lines(struct gp_labels *l, const char *path, FILE *f, int outputs, struct gp_err *err)
{
	char line[LABEL_MAX + 2];
	int lines = 0;
	while (fgets(line, sizeof line, f)) {
		lines++;
		if (!strchr(line, '\n') && !feof(f))
			GP_FAIL(err, GP_INVALID, "%s:%d: a label of more than %d characters", path, lines, LABEL_MAX);
		trim_end(line);
		if (!line[0])
			GP_FAIL(err, GP_INVALID, "%s:%d: an empty line; one label per line is expected", path, lines);
		if (lines <= outputs)
			GP_TRY(add_label(l, line, err));
	}
	if (ferror(f))
		GP_FAIL(err, GP_INVALID, "cannot read %s", path);
	if (lines != outputs)
		GP_FAIL(err, GP_INVALID, "%s has %d label%s, but the model has %d output%s", path, lines,
			lines == 1 ? "" : "s", outputs, outputs == 1 ? "" : "s");
	return GP_OK;
}

enum gp_status gp_labels_read(struct gp_labels *l, const char *path, int outputs, struct gp_err *err)
{
	*l = (struct gp_labels){0};
	FILE *f = fopen(path, "r");
	if (!f)
		return gp_err_set(err, GP_INVALID, errno, __FILE__, __LINE__, "cannot open %s: %s", path,
				  strerror(errno));
	enum gp_status status = gp_alloc_array((void **)&l->name, (size_t)outputs, sizeof *l->name, err);
	if (status == GP_OK)
		status = read_lines(l, path, f, outputs, err);
	fclose(f);
	if (status != GP_OK)
		gp_labels_deinit(l);
	return status;
}

enum gp_status gp_labels_of_dataset(struct gp_labels *l, const struct gp_dataset *d, int outputs, struct gp_err *err)
{
	*l = (struct gp_labels){0};
	enum gp_status status = gp_alloc_array((void **)&l->name, (size_t)outputs, sizeof *l->name, err);
	for (int i = 0; status == GP_OK && i < outputs; i++) {
		char made[32];
		snprintf(made, sizeof made, "output %d", i);
		status = add_label(l, i < gp_dataset_classes(d) ? gp_dataset_class_name(d, i) : made, err);
	}
	if (status != GP_OK)
		gp_labels_deinit(l);
	return status;
}

enum gp_status gp_labels_of_saved(struct gp_labels *l, const struct gp_saved_model *m, struct gp_err *err)
{
	const int count = gp_saved_model_labels(m);
	*l = (struct gp_labels){0};
	enum gp_status status = gp_alloc_array((void **)&l->name, (size_t)count, sizeof *l->name, err);
	for (int i = 0; status == GP_OK && i < count; i++)
		status = add_label(l, gp_saved_model_label(m, i), err);
	if (status != GP_OK)
		gp_labels_deinit(l);
	return status;
}

void gp_labels_deinit(struct gp_labels *l)
{
	for (int i = 0; i < l->count; i++)
		gp_free(l->name[i]);
	gp_free(l->name);
	*l = (struct gp_labels){0};
}
