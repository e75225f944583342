/* SPDX-License-Identifier: Apache-2.0
 *
 * See text_file.h. Test: tests/unit/test_tokenizer.c
 */
#include "client/text/text_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/mem.h"

enum gp_status gp_text_path(const char *folder, const char *file, char out[GP_TEXT_PATH], struct gp_err *err)
{
	if ((size_t)snprintf(out, GP_TEXT_PATH, "%s/%s", folder, file) >= GP_TEXT_PATH)
		GP_FAIL(err, GP_INVALID, "a path of more than %d characters: %.60s...", GP_TEXT_PATH - 1, folder);
	return GP_OK;
}

static enum gp_status read_file(FILE *f, const char *path, size_t most, char **out, size_t *bytes, struct gp_err *err)
{
	struct stat st;
	if (fstat(fileno(f), &st) != 0 || !S_ISREG(st.st_mode))
		GP_FAIL(err, GP_INVALID, "%s is no file", path);
	if ((uint64_t)st.st_size > most)
		GP_FAIL(err, GP_INVALID, "%s has %lld bytes, more than the %zu that such a file may have", path,
			(long long)st.st_size, most);
	const size_t size = (size_t)st.st_size;
	char *text = gp_realloc(NULL, size + 1, 1);
	if (!text)
		GP_FAIL(err, GP_NOMEM, "out of memory for the %zu bytes of %s", size, path);
	if (fread(text, 1, size, f) != size) {
		gp_free(text);
		GP_FAIL(err, GP_INVALID, "cannot read %s: %s", path, strerror(ferror(f) ? errno : EIO));
	}
	text[size] = '\0';
	*out = text;
	*bytes = size;
	return GP_OK;
}

enum gp_status gp_text_file_read(const char *path, size_t most, char **out, size_t *bytes, struct gp_err *err)
{
	const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* a pipe does not hold us */
	FILE *f = fd < 0 ? NULL : fdopen(fd, "rb");
	if (!f)
		GP_FAIL(err, GP_INVALID, "cannot open %s: %s", path, strerror(errno));
	const enum gp_status status = read_file(f, path, most, out, bytes, err);
	fclose(f);
	return status;
}

static unsigned line_at(struct gp_text text, const char *place)
{
	unsigned line = 1;
	for (const char *at = text.at; at < place; at++)
		line += *at == '\n';
	return line;
}

enum gp_status gp_text_check(const char *path, struct gp_text *text, struct gp_err *err)
{
	static const char mark[] = "\xEF\xBB\xBF";
	if (text->len >= 2 && (memcmp(text->at, "\xFF\xFE", 2) == 0 || memcmp(text->at, "\xFE\xFF", 2) == 0))
		GP_FAIL(err, GP_INVALID, "%s: its text is UTF-16; convert it to UTF-8", path);
	if (text->len >= sizeof mark - 1 && memcmp(text->at, mark, sizeof mark - 1) == 0)
		*text = (struct gp_text){text->at + sizeof mark - 1, text->len - (sizeof mark - 1)};
	const char *zero = text->len ? memchr(text->at, '\0', text->len) : NULL;
	if (zero)
		GP_FAIL(err, GP_INVALID, "%s:%u: a byte of value 0, which no text has: is this a file of another kind?",
			path, line_at(*text, zero));
	return GP_OK;
}

bool gp_text_file_there(const char *path)
{
	return access(path, F_OK) == 0;
}

bool gp_text_line(struct gp_text *rest, struct gp_text *line)
{
	if (!gp_text_cut(rest, '\n', line) || (!rest->at && line->len == 0))
		return false;
	if (line->len && line->at[line->len - 1] == '\r')
		line->len--;
	return true;
}
