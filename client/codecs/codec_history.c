/* SPDX-License-Identifier: Apache-2.0
 *
 * See codec_history.h. The file: a line "gpsplit codecs 1 XXXXXXXX" with the start of the run's id, then a line "STEP
 * R R R R" for each change. A last line without its end was being written when the process was killed: nothing has
 * followed from it.
 * Test: tests/unit/test_codec_history.c, tests/e2e/codec_auto.sh
 */
#include "client/codecs/codec_history.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/durable.h"
#include "common/base/mem.h"

#define FILE_NAME  "codecs"
#define BYTES_MOST (16 << 20)
#define LINE_MOST  80

struct change {
	uint64_t step;
	uint32_t rung[GP_DIRECTIONS];
};

struct gp_codec_history {
	struct gp_codec_history_spec spec;
	char path[PATH_MAX];
	int fd;       /* -1: there is no file */
	uint64_t end; /* of its whole lines */
	struct change *change;
	size_t count, room;
};

static enum gp_status push(struct gp_codec_history *h, const struct change *c, struct gp_err *err)
{
	if (h->count == h->room) {
		const size_t room = h->room ? 2 * h->room : 16;
		void *more;
		GP_TRY(gp_alloc_array(&more, room, sizeof *h->change, err));
		if (h->count > 0)
			memcpy(more, h->change, h->count * sizeof *h->change);
		gp_free(h->change);
		h->change = more;
		h->room = room;
	}
	h->change[h->count++] = *c;
	return GP_OK;
}

static int head_line(const struct gp_codec_history *h, char line[LINE_MOST])
{
	const uint8_t *id = h->spec.run_id;
	return snprintf(line, LINE_MOST, "gpsplit codecs 1 %02x%02x%02x%02x\n", id[0], id[1], id[2], id[3]);
}

static int change_line(const struct change *c, char line[LINE_MOST])
{
	return snprintf(line, LINE_MOST, "%" PRIu64 " %u %u %u %u\n", c->step, c->rung[0], c->rung[1], c->rung[2],
			c->rung[3]);
}

static bool is_possible(const struct gp_codec_history *h, const struct change *c)
{
	if (h->count > 0 ? c->step <= h->change[h->count - 1].step : c->step != 0)
		return false;
	for (int d = 0; d < GP_DIRECTIONS; d++)
		if (c->rung[d] >= (uint32_t)(h->spec.rungs[d] > 0 ? h->spec.rungs[d] : 1))
			return false;
	return true;
}

/* A line that reads as the same line when it is written again. */
static enum gp_status read_change(struct gp_codec_history *h, const char *line, size_t len, struct gp_err *err)
{
	char text[LINE_MOST], again[LINE_MOST];
	struct change c;
	if (len < LINE_MOST) {
		memcpy(text, line, len);
		text[len] = '\0';
		if (sscanf(text, "%" SCNu64 " %u %u %u %u", &c.step, &c.rung[0], &c.rung[1], &c.rung[2], &c.rung[3]) ==
			    5 &&
		    change_line(&c, again) == (int)len && memcmp(again, text, len) == 0 && is_possible(h, &c))
			return push(h, &c, err);
	}
	GP_FAIL(err, GP_INVALID, "%.200s: line %zu is no change of codecs of this run", h->path, h->count + 2);
}

static enum gp_status read_lines(struct gp_codec_history *h, const char *text, size_t len, struct gp_err *err)
{
	char head[LINE_MOST];
	const size_t first = (size_t)head_line(h, head);
	if (len < first || memcmp(text, head, first) != 0)
		GP_FAIL(err, GP_INVALID, "%.200s is not the list of codecs of this run", h->path);
	const char *at = text + first, *end;
	for (; (end = memchr(at, '\n', len - (size_t)(at - text))); at = end + 1)
		GP_TRY(read_change(h, at, (size_t)(end + 1 - at), err));
	h->end = (uint64_t)(at - text);
	if (h->count == 0)
		GP_FAIL(err, GP_INVALID, "%.200s names no codecs", h->path);
	return GP_OK;
}

static enum gp_status read_file(struct gp_codec_history *h, struct gp_err *err)
{
	struct stat st;
	void *text;
	h->fd = open(h->path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (h->fd < 0 || fstat(h->fd, &st) != 0)
		GP_FAIL(err, GP_INVALID,
			"--resume: cannot read %.200s, which says what codecs the run has used: %s; a new run needs "
			"another --checkpoint",
			h->path, strerror(errno));
	if (st.st_size > BYTES_MOST)
		GP_FAIL(err, GP_INVALID, "%.200s has over %d bytes", h->path, BYTES_MOST);
	GP_TRY(gp_alloc_array(&text, (size_t)st.st_size + 1, 1, err));
	enum gp_status status = gp_read_all(h->fd, text, (uint64_t)st.st_size, h->path, err);
	if (status == GP_OK)
		status = read_lines(h, text, (size_t)st.st_size, err);
	gp_free(text);
	return status;
}

static enum gp_status write_line(struct gp_codec_history *h, const char *line, int len, struct gp_err *err)
{
	if (ftruncate(h->fd, (off_t)h->end) != 0 || lseek(h->fd, (off_t)h->end, SEEK_SET) < 0)
		return gp_fail_os(err, GP_IO, "write", h->path);
	enum gp_status status = gp_write_all(h->fd, line, (uint64_t)len, h->path, err);
	if (status == GP_OK)
		status = gp_sync_fd(h->fd, h->path, err);
	if (status != GP_OK) {
		(void)!ftruncate(h->fd, (off_t)h->end); /* what is not made must not be read as if it had been */
		return status;
	}
	h->end += (uint64_t)len;
	return GP_OK;
}

static enum gp_status make_file(struct gp_codec_history *h, struct gp_err *err)
{
	char text[2 * LINE_MOST];
	int len = head_line(h, text);
	len += change_line(&h->change[0], text + len);
	h->fd = open(h->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (h->fd < 0)
		return gp_fail_os(err, GP_INVALID, "create", h->path);
	GP_TRY(write_line(h, text, len, err));
	return gp_sync_folder(h->spec.dir, err);
}

static enum gp_status begin(struct gp_codec_history *h, struct gp_err *err)
{
	struct change first = {.step = 0};
	if (h->spec.dir && snprintf(h->path, sizeof h->path, "%s/" FILE_NAME, h->spec.dir) >= (int)sizeof h->path)
		GP_FAIL(err, GP_INVALID, "the path %.100s... is too long", h->spec.dir);
	if (h->spec.dir && h->spec.resumes)
		return read_file(h, err);
	memcpy(first.rung, h->spec.first, sizeof first.rung);
	GP_TRY(push(h, &first, err));
	return h->spec.dir ? make_file(h, err) : GP_OK;
}

enum gp_status gp_codec_history_new(const struct gp_codec_history_spec *spec, struct gp_codec_history **out,
				    struct gp_err *err)
{
	struct gp_codec_history *h = gp_calloc(1, sizeof *h);
	if (!h)
		GP_FAIL(err, GP_NOMEM, "out of memory for a list of codecs");
	h->spec = *spec;
	h->fd = -1;
	const enum gp_status status = begin(h, err);
	if (status == GP_OK)
		*out = h;
	else
		gp_codec_history_free(h);
	return status;
}

void gp_codec_history_free(struct gp_codec_history *h)
{
	if (!h)
		return;
	if (h->fd >= 0)
		close(h->fd);
	gp_free(h->change);
	gp_free(h);
}

void gp_codec_history_at(const struct gp_codec_history *h, uint64_t steps, uint32_t rung[GP_DIRECTIONS])
{
	size_t i = h->count - 1;
	while (i > 0 && h->change[i].step > steps)
		i--;
	memcpy(rung, h->change[i].rung, sizeof h->change[i].rung);
}

uint64_t gp_codec_history_newest(const struct gp_codec_history *h)
{
	return h->change[h->count - 1].step;
}

enum gp_status gp_codec_history_add(struct gp_codec_history *h, uint64_t steps, const uint32_t rung[GP_DIRECTIONS],
				    struct gp_err *err)
{
	char line[LINE_MOST];
	struct change c = {.step = steps};
	memcpy(c.rung, rung, sizeof c.rung);
	gp_require(steps > gp_codec_history_newest(h));
	GP_TRY(push(h, &c, err));
	const enum gp_status status = h->fd >= 0 ? write_line(h, line, change_line(&c, line), err) : GP_OK;
	if (status != GP_OK)
		h->count--;
	return status;
}
