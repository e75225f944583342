/* SPDX-License-Identifier: Apache-2.0
 *
 * See server_beat.h. Test: tests/unit/test_lease_keeper.c
 */
#include "server/server_beat.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/durable.h"
#include "common/base/text.h"
#include "common/store/manifest.h"

#define SERVERS "servers"
#define BURIED  "tmp-"
#define WORD    48

#define LOAD_WRITTEN " sessions %u movable %u room %u drains %u"
#define LOAD_READ    " sessions %7u movable %7u room %7u drains %1u" /* a longer number is none of ours */
#define LOAD_TEXT    96

static enum gp_status beat_path(const char *dir, const char *owner, const char *file, char out[PATH_MAX],
				struct gp_err *err)
{
	if (snprintf(out, PATH_MAX, "%s/" SERVERS "/%s%s%s", dir, owner, *file ? "/" : "", file) >= PATH_MAX)
		GP_FAIL(err, GP_INVALID, "the path %.100s... is too long", dir);
	return GP_OK;
}

/* --- where a process lives --------------------------------------------------------------------------------------- */

/* The first word of a small file, or what a link points to; "-": unknown. */
static void read_word(const char *path, bool link, char out[WORD])
{
	ssize_t n = -1;
	if (link) {
		n = readlink(path, out, WORD - 1);
	} else {
		const int fd = open(path, O_RDONLY | O_CLOEXEC);
		n = fd >= 0 ? read(fd, out, WORD - 1) : -1;
		if (fd >= 0)
			close(fd);
	}
	out[n > 0 ? n : 0] = '\0';
	out[strcspn(out, " \t\n")] = '\0';
	if (!out[0])
		snprintf(out, WORD, "-");
}

/* A machine's start and its space of process ids: within both, a number is one process. A service that may not read the
 * first under /proc is told it (deploy/systemd). */
static void read_home(char boot[WORD], char space[WORD])
{
	read_word("/proc/sys/kernel/random/boot_id", false, boot);
	read_word("/proc/self/ns/pid", true, space);
	const char *told = getenv("GP_BOOT_ID");
	if (strcmp(boot, "-") == 0 && told && strlen(told) < WORD && strcspn(told, " \t\n") == strlen(told) && *told)
		snprintf(boot, WORD, "%s", told);
	for (char *c = boot; *c; c++) /* systemd's has no dashes */
		if (*c == '-' && boot[1])
			memmove(c, c + 1, strlen(c));
}

/* A zombie still is one: a thread of it may be within a call. */
static bool has_ended(const char *boot, const char *space, long pid)
{
	char own_boot[WORD], own_space[WORD];
	read_home(own_boot, own_space);
	if (strcmp(boot, "-") == 0 || strcmp(space, "-") == 0 || pid <= 0 || pid > INT_MAX)
		return false;
	return strcmp(boot, own_boot) == 0 && strcmp(space, own_space) == 0 && kill((pid_t)pid, 0) != 0 &&
	       errno == ESRCH;
}

/* --- this server's --------------------------------------------------------------------------------------------------- */

/* Behind the name, where versions that know nothing of it do not look. */
static void write_load(const struct gp_beat_load *l, char out[LOAD_TEXT])
{
	out[0] = '\0';
	if (l->known)
		snprintf(out, LOAD_TEXT, LOAD_WRITTEN, l->sessions, l->movable, l->room, l->drains ? 1u : 0u);
}

static void write_page(const struct gp_beat *b, struct gp_beat_page *page)
{
	char boot[WORD], space[WORD], load[LOAD_TEXT];
	read_home(boot, space);
	write_load(&b->load, load);
	memset(page->bytes, ' ', sizeof page->bytes);
	const int n = snprintf(page->bytes, sizeof page->bytes,
			       "gpserverd 1 beat %" PRIu64 " lease_ms %" PRIu64 " boot %s space %s pid %ld name %s%s\n",
			       b->counter, b->lease_ms, boot, space, (long)getpid(), b->name, load);
	page->bytes[n] = ' ';
	page->bytes[GP_BEAT_BYTES - 1] = '\n';
}

/* In its place, so that its name always leads to it. Closing makes a file over NFS known to the other machines; that it
 * survives a failure of power is no use to anybody, so that it is not synced. */
static enum gp_status overwrite(const char *path, const void *data, size_t len, off_t at, struct gp_err *err)
{
	const int fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return gp_fail_os(err, errno == ENOENT ? GP_CANCELED : GP_IO, "open", path);
	ssize_t n;
	do
		n = pwrite(fd, data, len, at);
	while (n < 0 && errno == EINTR);
	if (n >= 0 && n < (ssize_t)len)
		errno = ENOSPC; /* what else cuts off so few bytes */
	enum gp_status status = n == (ssize_t)len ? GP_OK : gp_fail_os(err, GP_IO, "write", path);
	if (close(fd) != 0 && status == GP_OK)
		status = gp_fail_os(err, GP_IO, "close", path);
	return status;
}

static enum gp_status make_empty(const char *path, off_t bytes, struct gp_err *err)
{
	const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return gp_fail_os(err, GP_IO, "create", path);
	const enum gp_status status = ftruncate(fd, bytes) == 0 ? GP_OK : gp_fail_os(err, GP_IO, "write", path);
	close(fd);
	return status;
}

static enum gp_status draw_owner(char out[GP_OWNER_TEXT], struct gp_err *err)
{
	uint64_t number;
	GP_TRY(gp_random_bytes(&number, sizeof number, err));
	snprintf(out, GP_OWNER_TEXT, "%016" PRIx64, number ? number : 1);
	return GP_OK;
}

enum gp_status gp_beat_begin(struct gp_beat *b, const char *dir, const char *name, uint64_t lease_ms,
			     struct gp_err *err)
{
	char folder[PATH_MAX], path[PATH_MAX];
	struct gp_beat own = {.dir = dir, .lease_ms = lease_ms};
	gp_text_shown(gp_text_of(name), own.name);
	GP_TRY(draw_owner(own.owner, err));
	GP_TRY(beat_path(dir, own.owner, "", folder, err));
	GP_TRY(gp_make_folder(folder, err));
	enum gp_status status = beat_path(dir, own.owner, "wants", path, err);
	if (status == GP_OK)
		status = make_empty(path, GP_WANTS_MAX * GP_WANT_BYTES, err);
	if (status == GP_OK)
		status = beat_path(dir, own.owner, "beat", path, err);
	if (status == GP_OK)
		status = make_empty(path, 0, err);
	if (status == GP_OK)
		status = gp_beat_renew(&own, err);
	if (status == GP_OK)
		*b = own;
	else
		gp_beat_end(&own);
	return status;
}

enum gp_status gp_beat_renew(struct gp_beat *b, struct gp_err *err)
{
	char path[PATH_MAX];
	struct gp_beat_page page;
	b->counter++;
	write_page(b, &page);
	GP_TRY(beat_path(b->dir, b->owner, "beat", path, err));
	return overwrite(path, page.bytes, sizeof page.bytes, 0, err);
}

void gp_beat_end(const struct gp_beat *b)
{
	struct gp_err ignored;
	gp_beat_bury(b->dir, b->owner, &ignored);
}

enum gp_status gp_beat_place(const struct gp_beat *b, const uint8_t run[GP_RUN_ID_BYTES], char out[PATH_MAX],
			     struct gp_err *err)
{
	char name[8 + GP_RUN_ID_HEX] = "new-";
	gp_run_id_text(run, name + strlen(name));
	return beat_path(b->dir, b->owner, name, out, err);
}

/* --- others' ------------------------------------------------------------------------------------------------------ */

/* Opened each time: over NFS, opening is when the machine asks whether the file has changed. */
static enum gp_status read_whole(const char *path, char *out, size_t room, size_t *len, struct gp_err *err)
{
	ssize_t n = 1;
	const int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return gp_fail_os(err, errno == ENOENT ? GP_CANCELED : GP_IO, "open", path);
	for (*len = 0; n > 0 && *len<room; *len += n> 0 ? (size_t)n : 0)
		n = read(fd, out + *len, room - *len);
	const enum gp_status status = n < 0 ? gp_fail_os(err, GP_IO, "read", path) : GP_OK;
	close(fd);
	return status;
}

enum gp_status gp_beat_read(const char *dir, const char *owner, struct gp_beat_page *out, struct gp_err *err)
{
	char path[PATH_MAX];
	size_t len;
	memset(out, 0, sizeof *out);
	GP_TRY(beat_path(dir, owner, "beat", path, err));
	return read_whole(path, out->bytes, sizeof out->bytes, &len, err);
}

/* The last words of the line; a name cannot be taken for them, because it stands before and has no blanks. */
static struct gp_beat_load read_load(const char *line)
{
	struct gp_beat_load l = {.known = false};
	unsigned drains;
	const char *name = strstr(line, " name ");
	const char *at = name ? strstr(name, " sessions ") : NULL;
	if (!at || sscanf(at, LOAD_READ, &l.sessions, &l.movable, &l.room, &drains) != 4)
		return (struct gp_beat_load){.known = false};
	l.known = l.sessions <= GP_BEAT_SESSIONS_MAX && l.room <= GP_BEAT_SESSIONS_MAX && l.movable <= l.sessions;
	l.drains = drains != 0;
	return l;
}

struct gp_beat_facts gp_beat_facts(const struct gp_beat_page *page)
{
	char text[GP_BEAT_BYTES + 1], boot[WORD], space[WORD];
	struct gp_beat_facts f = {.valid = false};
	uint64_t counter;
	long pid;
	memcpy(text, page->bytes, GP_BEAT_BYTES);
	text[GP_BEAT_BYTES] = '\0';
	text[strcspn(text, "\n")] = '\0';
	char name[GP_BEAT_NAME] = "";
	if (sscanf(text, "gpserverd 1 beat %" SCNu64 " lease_ms %" SCNu64 " boot %47s space %47s pid %ld name %63s",
		   &counter, &f.lease_ms, boot, space, &pid, name) < 5 ||
	    f.lease_ms == 0 || f.lease_ms > GP_LEASE_S_MAX * UINT64_C(1000))
		return f;
	gp_text_shown(gp_text_of(name), f.name);
	f.valid = true;
	f.load = read_load(text);
	f.ended = has_ended(boot, space, pid);
	return f;
}

static void remove_buried(const char *path)
{
	char inner[PATH_MAX];
	struct gp_err ignored;
	DIR *d = gp_open_folder(path);
	for (const struct dirent *e; d && (e = readdir(d));) { /* a run that was being made has a folder in it */
		if (strncmp(e->d_name, "new-", 4) != 0 ||
		    snprintf(inner, sizeof inner, "%s/%s", path, e->d_name) >= (int)sizeof inner)
			continue;
		DIR *made = gp_open_folder(inner);
		for (const struct dirent *w; made && (w = readdir(made));) {
			char work[PATH_MAX];
			if (w->d_name[0] != '.' &&
			    snprintf(work, sizeof work, "%s/%s", inner, w->d_name) < (int)sizeof work)
				gp_remove_folder(work, &ignored);
		}
		if (made)
			closedir(made);
		gp_remove_folder(inner, &ignored);
	}
	if (d)
		closedir(d);
	gp_remove_folder(path, &ignored);
}

/* The rename is what counts, and one of several that try it succeeds. */
enum gp_status gp_beat_bury(const char *dir, const char *owner, struct gp_err *err)
{
	char folder[PATH_MAX], away[PATH_MAX], name[sizeof BURIED + GP_OWNER_TEXT];
	snprintf(name, sizeof name, BURIED "%s", owner);
	GP_TRY(beat_path(dir, owner, "", folder, err));
	GP_TRY(beat_path(dir, name, "", away, err));
	if (rename(folder, away) != 0 && errno != ENOENT)
		return gp_fail_os(err, GP_IO, "rename", folder);
	remove_buried(away);
	return GP_OK;
}

enum gp_status gp_beat_each(const char *dir, void (*each)(const char *owner, void *arg), void *arg, struct gp_err *err)
{
	char folder[PATH_MAX], path[PATH_MAX], owner[GP_OWNER_TEXT];
	GP_TRY(beat_path(dir, "", "", folder, err));
	DIR *d = gp_open_folder(folder);
	if (!d)
		return errno == ENOENT ? GP_OK : gp_fail_os(err, GP_IO, "open", folder);
	for (const struct dirent *e; (e = readdir(d));) {
		if (gp_owner_parse(e->d_name, owner))
			each(owner, arg);
		else if (strncmp(e->d_name, BURIED, strlen(BURIED)) == 0 &&
			 beat_path(dir, e->d_name, "", path, err) == GP_OK)
			remove_buried(path);
	}
	closedir(d);
	return GP_OK;
}

/* --- asking for a run -------------------------------------------------------------------------------------------- */

enum gp_status gp_beat_want(const char *dir, const char *owner, const struct gp_want *want, struct gp_err *err)
{
	char path[PATH_MAX], run[GP_RUN_ID_HEX], slot[GP_WANT_BYTES + 1];
	gp_run_id_text(want->run, run);
	snprintf(slot, sizeof slot, "%s %016" PRIx64 " %016" PRIx64 "%*s\n", run, want->generation, want->nonce,
		 GP_WANT_BYTES - 32 - 2 * 17 - 1, "");
	GP_TRY(beat_path(dir, owner, "wants", path, err));
	return overwrite(path, slot, GP_WANT_BYTES, (off_t)(want->run[0] % GP_WANTS_MAX) * GP_WANT_BYTES, err);
}

bool gp_beat_parse_want(const char slot[GP_WANT_BYTES], struct gp_want *out)
{
	char run[GP_RUN_ID_HEX], text[GP_WANT_BYTES + 1];
	memcpy(text, slot, GP_WANT_BYTES);
	text[GP_WANT_BYTES] = '\0';
	memcpy(run, text, GP_RUN_ID_HEX - 1);
	run[GP_RUN_ID_HEX - 1] = '\0';
	return gp_run_id_parse(run, out->run) &&
	       sscanf(text + GP_RUN_ID_HEX - 1, " %16" SCNx64 " %16" SCNx64, &out->generation, &out->nonce) == 2;
}

int gp_beat_wants(const struct gp_beat *b, struct gp_want out[GP_WANTS_MAX])
{
	char path[PATH_MAX], bytes[GP_WANTS_MAX * GP_WANT_BYTES] = {0};
	struct gp_err ignored;
	size_t len;
	int n = 0;
	if (beat_path(b->dir, b->owner, "wants", path, &ignored) != GP_OK ||
	    read_whole(path, bytes, sizeof bytes, &len, &ignored) != GP_OK)
		return 0;
	for (int i = 0; i < GP_WANTS_MAX; i++)
		n += gp_beat_parse_want(bytes + i * GP_WANT_BYTES, &out[n]);
	return n;
}
