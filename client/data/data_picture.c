/* SPDX-License-Identifier: Apache-2.0
 *
 * Picture files: which names are pictures, what is in a folder, and reading
 * one. Decoding is data_image.c. Test: tests/unit/test_data_folder.c
 */
#include "client/data/data_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_BYTES_MAX ((uint64_t)256 << 20)

void gp_names_deinit(struct gp_names *n)
{
	for (size_t i = 0; i < n->count; i++)
		gp_free(n->name[i]);
	gp_free(n->name);
	*n = (struct gp_names){0};
}

enum gp_status gp_names_add(struct gp_names *n, const char *name, struct gp_err *err)
{
	if (n->count == n->room) {
		size_t room = n->room ? 2 * n->room : 64;
		char **grown = gp_realloc(n->name, room, sizeof *grown);
		if (!grown)
			GP_FAIL(err, GP_NOMEM, "out of memory for %zu file names", room);
		n->name = grown;
		n->room = room;
	}
	char *copy = gp_strdup(name);
	if (!copy)
		GP_FAIL(err, GP_NOMEM, "out of memory for file names");
	n->name[n->count++] = copy;
	return GP_OK;
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

bool gp_names_have(const struct gp_names *n, const char *name)
{
	return n->count && bsearch(&name, n->name, n->count, sizeof name, compare_names);
}

static bool is_picture(const char *name)
{
	const char *dot = strrchr(name, '.');
	return dot && (strcasecmp(dot, ".jpg") == 0 || strcasecmp(dot, ".jpeg") == 0 || strcasecmp(dot, ".png") == 0);
}

bool gp_is_folder(const char *dir, const char *name)
{
	char path[GP_PICTURE_PATH];
	struct stat st;
	int n = snprintf(path, sizeof path, "%s%s%s", dir, name[0] ? "/" : "", name);
	return n > 0 && (size_t)n < sizeof path && stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

enum gp_status gp_folder_list(const char *path, bool folders, struct gp_names *out, struct gp_err *err)
{
	enum gp_status status = GP_OK;
	struct dirent *e;
	DIR *dir = opendir(path);
	if (!dir)
		return gp_err_set(err, GP_INVALID, errno, __FILE__, __LINE__, "cannot open folder %s: %s", path,
				  strerror(errno));
	while (status == GP_OK && (e = readdir(dir))) {
		if (e->d_name[0] == '.')
			continue;
		if (folders ? gp_is_folder(path, e->d_name) : is_picture(e->d_name))
			status = gp_names_add(out, e->d_name, err);
	}
	closedir(dir);
	if (status == GP_OK && out->count)
		qsort(out->name, out->count, sizeof *out->name, compare_names);
	return status;
}

/* Plain reads: a FILE would allocate its buffer for every picture. */
static size_t read_fully(int fd, uint8_t *to, size_t size)
{
	size_t got = 0;
	while (got < size) {
		ssize_t n = read(fd, to + got, size - got);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		got += (size_t)n;
	}
	return got;
}

static enum gp_status read_whole(const char *path, int fd, struct gp_bytes *buffer, struct gp_span *out,
				 struct gp_err *err)
{
	struct stat st;
	if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
		GP_FAIL(err, GP_INVALID, "%s is not a regular file", path);
	if ((uint64_t)st.st_size > FILE_BYTES_MAX)
		GP_FAIL(err, GP_INVALID, "%s has %llu bytes; pictures of at most 256 MiB are read", path,
			(unsigned long long)st.st_size);
	size_t size = (size_t)st.st_size;
	GP_TRY(gp_bytes_reserve(buffer, size, err));
	size_t got = read_fully(fd, buffer->data, size);
	if (got != size)
		GP_FAIL(err, GP_INVALID, "%s: only %zu of %zu bytes could be read", path, got, size);
	*out = (struct gp_span){buffer->data, got};
	return GP_OK;
}

enum gp_status gp_picture_read(const char *path, struct gp_data_scratch *scratch, struct gp_image *out,
			       struct gp_err *err)
{
	struct gp_span bytes;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe of that name must not block us */
	if (fd < 0)
		return gp_err_set(err, GP_INVALID, errno, __FILE__, __LINE__, "cannot open %s: %s", path,
				  strerror(errno));
	enum gp_status status = read_whole(path, fd, &scratch->file, &bytes, err);
	close(fd);
	return status == GP_OK ? gp_image_decode(&bytes, path, scratch, out, err) : status;
}
