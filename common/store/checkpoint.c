/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints on disk. See checkpoint.h.
 */
#include "common/store/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#define XXH_STATIC_LINKING_ONLY /* a hash state on the stack */
#include <xxhash.h>

#include "common/base/durable.h"
#include "common/base/text.h"

#define STATE_NAME    "state.safetensors"
#define MANIFEST_NAME "manifest.json"
#define LOCK_NAME     "lock"
#define STEP_DIGITS   12
#define HASHED_BYTES  (1u << 20) /* at once */
#define TEMP_PREFIX   "tmp-"     /* what is being written or removed */
#define STEP_PREFIX   "step-"
#define CONFIRMED     "confirmed"

/* --- names ------------------------------------------------------------------------------------------------------ */

struct path {
	char text[PATH_MAX];
};

/* DIR/PREFIXstep-000000000012[/FILE] */
static enum gp_status step_path(const char *dir, const char *prefix, uint64_t step, const char *file, struct path *out,
				struct gp_err *err)
{
	int n = snprintf(out->text, sizeof out->text, "%s/%sstep-%0*" PRIu64 "%s%s", dir, prefix, STEP_DIGITS, step,
			 file ? "/" : "", file ? file : "");
	if (n >= (int)sizeof out->text)
		GP_FAIL(err, GP_INVALID, "the path %.100s... is too long", dir);
	return GP_OK;
}

static bool parse_step(const char *name, uint64_t *out)
{
	if (strncmp(name, STEP_PREFIX, 5) != 0 || strlen(name) != 5 + STEP_DIGITS ||
	    strspn(name + 5, "0123456789") != STEP_DIGITS)
		return false;
	*out = strtoull(name + 5, NULL, 10);
	return true;
}

/* What a killed writer or remover leaves: "tmp-step-...", "tmp-old-step-...". */
static bool is_temporary(const char *name)
{
	uint64_t step;
	if (strncmp(name, TEMP_PREFIX, strlen(TEMP_PREFIX)) != 0)
		return false;
	name += strlen(TEMP_PREFIX);
	return parse_step(strncmp(name, "old-", 4) == 0 ? name + 4 : name, &step);
}

/* --- folders ---------------------------------------------------------------------------------------------------- */

/* Calls `each` for every entry of the folder but dot files; no folder is an empty one. */
static enum gp_status each_entry(const char *dir,
				 enum gp_status (*each)(const char *name, void *arg, struct gp_err *err), void *arg,
				 struct gp_err *err)
{
	DIR *d = gp_open_folder(dir);
	if (!d && errno == ENOENT)
		return GP_OK;
	if (!d)
		return gp_fail_os(err, GP_INVALID, "open", dir);
	enum gp_status status = GP_OK;
	for (const struct dirent *e; status == GP_OK && (e = readdir(d));)
		if (e->d_name[0] != '.')
			status = each(e->d_name, arg, err);
	closedir(d);
	return status;
}

static enum gp_status clean_entry(const char *name, void *arg, struct gp_err *err)
{
	char path[PATH_MAX];
	const char *dir = arg;
	if (!is_temporary(name))
		return GP_OK;
	if (snprintf(path, sizeof path, "%s/%s", dir, name) >= (int)sizeof path)
		return GP_OK;
	return gp_remove_folder(path, err);
}

enum gp_status gp_checkpoint_clean(const char *dir, struct gp_err *err)
{
	return each_entry(dir, clean_entry, (void *)dir, err);
}

/* What somebody might have put into a folder, and what it means. */
struct inspection {
	const char *dir;
	enum gp_manifest_role role;
	bool ours;                  /* there is a lock, or a checkpoint */
	char strange[NAME_MAX + 1]; /* neither ours nor harmless; "": nothing */
};

static enum gp_status inspect_entry(const char *name, void *arg, struct gp_err *err)
{
	struct inspection *n = arg;
	uint8_t id[GP_RUN_ID_BYTES];
	uint64_t step;
	char shown[GP_SHOWN];
	const bool of_client = parse_step(name, &step), of_server = gp_run_id_parse(name, id);
	if (of_client && n->role == GP_MANIFEST_SERVER)
		GP_FAIL(err, GP_INVALID,
			"%s holds the checkpoints of a client ('%s'); a server needs a folder of its own", n->dir,
			name);
	if (of_server && n->role == GP_MANIFEST_CLIENT)
		GP_FAIL(err, GP_INVALID,
			"%s holds the checkpoints of a server ('%.8s...'); a client needs a folder of its own", n->dir,
			name);
	if (!of_client && strncmp(name, STEP_PREFIX, strlen(STEP_PREFIX)) == 0)
		GP_FAIL(err, GP_INVALID,
			"%s holds '%s', which is no checkpoint of this version; move it away, or name another folder",
			n->dir, gp_text_shown(gp_text_of(name), shown));
	n->ours |= of_client || of_server || strcmp(name, LOCK_NAME) == 0;
	if (!of_client && !of_server && strcmp(name, LOCK_NAME) != 0 && strcmp(name, "lost+found") != 0 &&
	    !is_temporary(name) && !n->strange[0])
		snprintf(n->strange, sizeof n->strange, "%s", name);
	return GP_OK;
}

enum gp_status gp_checkpoint_check_folder(const char *dir, enum gp_manifest_role role, struct gp_err *err)
{
	struct inspection n = {.dir = dir, .role = role};
	char shown[GP_SHOWN];
	GP_TRY(each_entry(dir, inspect_entry, &n, err));
	if (n.strange[0] && !n.ours)
		GP_FAIL(err, GP_INVALID,
			"%s holds other files ('%s') and no checkpoints; name a folder that is new or empty", dir,
			gp_text_shown(gp_text_of(n.strange), shown));
	return GP_OK;
}

enum gp_status gp_checkpoint_lock(const char *dir, int *lock, struct gp_err *err)
{
	char path[PATH_MAX];
	GP_TRY(gp_make_folder(dir, err));
	if (snprintf(path, sizeof path, "%s/" LOCK_NAME, dir) >= (int)sizeof path)
		GP_FAIL(err, GP_INVALID, "the path %.100s... is too long", dir);
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0)
		return gp_fail_os(err, GP_INVALID, "create", path);
	if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
		close(fd);
		GP_FAIL(err, GP_INVALID, "%s is in use by another process", dir);
	}
	if (gp_checkpoint_clean(dir, err) != GP_OK) {
		close(fd);
		return err->code;
	}
	*lock = fd;
	return GP_OK;
}

void gp_checkpoint_unlock(int lock)
{
	close(lock);
}

struct listing {
	uint64_t *step;
	int count;
};

/* Keeps the newest, in order. */
static enum gp_status list_entry(const char *name, void *arg, struct gp_err *err)
{
	(void)err;
	struct listing *l = arg;
	uint64_t step;
	if (!parse_step(name, &step))
		return GP_OK;
	int at = l->count;
	while (at > 0 && l->step[at - 1] < step)
		at--;
	if (at == GP_CHECKPOINTS_MAX)
		return GP_OK;
	l->count += l->count < GP_CHECKPOINTS_MAX;
	memmove(l->step + at + 1, l->step + at, (size_t)(l->count - at - 1) * sizeof *l->step);
	l->step[at] = step;
	return GP_OK;
}

enum gp_status gp_checkpoint_list(const char *dir, uint64_t step[GP_CHECKPOINTS_MAX], int *count, struct gp_err *err)
{
	uint64_t found[GP_CHECKPOINTS_MAX];
	struct listing l = {found, 0};
	GP_TRY(each_entry(dir, list_entry, &l, err));
	memcpy(step, found, (size_t)l.count * sizeof *step);
	*count = l.count;
	return GP_OK;
}

/* The folder is renamed first, so that a checkpoint that is half removed is never found. */
enum gp_status gp_checkpoint_remove_via(const char *dir, const char *work, uint64_t step, struct gp_err *err)
{
	struct path from, to;
	GP_TRY(step_path(dir, "", step, NULL, &from, err));
	GP_TRY(step_path(work, TEMP_PREFIX "old-", step, NULL, &to, err));
	GP_TRY(gp_remove_folder(to.text, err));
	if (rename(from.text, to.text) != 0)
		return errno == ENOENT && access(from.text, F_OK) != 0 ? GP_OK
								       : gp_fail_os(err, GP_IO, "remove", from.text);
	return gp_remove_folder(to.text, err);
}

struct removal {
	const char *dir, *work;
	uint64_t above; /* steps */
};

static enum gp_status remove_above(const char *name, void *arg, struct gp_err *err)
{
	const struct removal *r = arg;
	uint64_t step;
	return parse_step(name, &step) && step > r->above ? gp_checkpoint_remove_via(r->dir, r->work, step, err)
							  : GP_OK;
}

enum gp_status gp_checkpoint_drop_after_via(const char *dir, const char *work, uint64_t step, struct gp_err *err)
{
	struct removal r = {dir, work, step};
	return each_entry(dir, remove_above, &r, err);
}

static enum gp_status remove_below(const char *name, void *arg, struct gp_err *err)
{
	const struct removal *r = arg;
	uint64_t step;
	return parse_step(name, &step) && step < r->above ? gp_checkpoint_remove_via(r->dir, r->work, step, err)
							  : GP_OK;
}

enum gp_status gp_checkpoint_prune_via(const char *dir, const char *work, int stay, struct gp_err *err)
{
	uint64_t step[GP_CHECKPOINTS_MAX];
	int count;
	gp_require(stay > 0 && stay <= GP_CHECKPOINTS_MAX);
	GP_TRY(gp_checkpoint_list(dir, step, &count, err));
	if (count < stay)
		return GP_OK;
	struct removal r = {dir, work, step[stay - 1]};
	return each_entry(dir, remove_below, &r, err);
}

enum gp_status gp_checkpoint_confirm(const char *dir, uint64_t step, struct gp_err *err)
{
	struct path path;
	GP_TRY(step_path(dir, "", step, CONFIRMED, &path, err));
	const int fd = open(path.text, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0)
		return gp_fail_os(err, GP_IO, "create", path.text);
	close(fd);
	return GP_OK;
}

bool gp_checkpoint_is_confirmed(const char *dir, uint64_t step)
{
	struct path path;
	struct gp_err ignored;
	return step_path(dir, "", step, CONFIRMED, &path, &ignored) == GP_OK && access(path.text, F_OK) == 0;
}

/* --- writing ---------------------------------------------------------------------------------------------------- */

static enum gp_status hash_bytes(int fd, const char *path, uint64_t len, void *buffer, uint64_t *hash,
				 struct gp_err *err)
{
	XXH3_state_t state;
	XXH3_64bits_reset(&state);
	for (uint64_t n; len > 0; len -= n) {
		n = len < HASHED_BYTES ? len : HASHED_BYTES;
		GP_TRY(gp_read_all(fd, buffer, n, path, err));
		XXH3_64bits_update(&state, buffer, n);
	}
	*hash = XXH3_64bits_digest(&state);
	return GP_OK;
}

/* A state is large, and the session has no memory for it once more: it is read piece by piece. */
static enum gp_status measure_state(const char *path, struct gp_manifest *m, struct gp_err *err)
{
	struct stat st;
	void *buffer;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return gp_fail_os(err, GP_IO, "open", path);
	enum gp_status status = fstat(fd, &st) == 0 ? GP_OK : gp_fail_os(err, GP_IO, "measure", path);
	if (status == GP_OK)
		status = gp_alloc_array(&buffer, 1, HASHED_BYTES, err);
	if (status == GP_OK) {
		m->state_bytes = (uint64_t)st.st_size;
		status = hash_bytes(fd, path, m->state_bytes, buffer, &m->state_hash, err);
		gp_free(buffer);
	}
	close(fd);
	return status;
}

static enum gp_status write_state(const char *path, const struct gp_manifest *m, const struct gp_st_item *items,
				  int count, struct gp_err *err)
{
	GP_TRY(gp_st_write(path, items, count, m->state_meta, m->state_meta_count, err));
	if (chmod(path, 0600) != 0)
		return gp_fail_os(err, GP_IO, "protect", path);
	return GP_OK;
}

/* The folder above it is not made: it may be gone for good reason. */
static enum gp_status make_temporary(const char *path, struct gp_err *err)
{
	GP_TRY(gp_remove_folder(path, err));
	return mkdir(path, 0700) == 0 ? GP_OK : gp_fail_os(err, GP_IO, "make the folder", path);
}

static enum gp_status fill_folder(const char *work, struct gp_manifest *m, const struct gp_st_item *items, int count,
				  size_t *manifest_bytes, struct gp_err *err)
{
	struct path folder, state, manifest;
	char *text;
	GP_TRY(step_path(work, TEMP_PREFIX, m->step, NULL, &folder, err));
	GP_TRY(step_path(work, TEMP_PREFIX, m->step, STATE_NAME, &state, err));
	GP_TRY(step_path(work, TEMP_PREFIX, m->step, MANIFEST_NAME, &manifest, err));
	GP_TRY(make_temporary(folder.text, err));
	GP_TRY(write_state(state.text, m, items, count, err));
	GP_TRY(measure_state(state.text, m, err));
	GP_TRY(gp_manifest_text(m, &text, err));
	*manifest_bytes = strlen(text);
	enum gp_status status = gp_write_file(manifest.text, text, *manifest_bytes, err);
	free(text);
	GP_TRY(status);
	return gp_sync_folder(folder.text, err);
}

static enum gp_status move_into_place(const char *dir, const char *work, uint64_t step, struct gp_err *err)
{
	struct path from, to;
	GP_TRY(step_path(work, TEMP_PREFIX, step, NULL, &from, err));
	GP_TRY(step_path(dir, "", step, NULL, &to, err));
	GP_TRY(gp_checkpoint_remove_via(dir, work, step, err));
	if (rename(from.text, to.text) != 0)
		return gp_fail_os(err, GP_IO, "rename into place", to.text);
	if (gp_sync_folder(dir, err) == GP_OK)
		return GP_OK;
	struct gp_err ignored; /* nobody may rely on it: it could be gone after a power failure */
	gp_checkpoint_remove_via(dir, work, step, &ignored);
	return err->code;
}

static void remove_temporary(const char *work, uint64_t step)
{
	struct path folder;
	struct gp_err ignored;
	if (step_path(work, TEMP_PREFIX, step, NULL, &folder, &ignored) == GP_OK)
		gp_remove_folder(folder.text, &ignored);
}

enum gp_status gp_checkpoint_write_via(const char *dir, const char *work, const struct gp_manifest *m,
				       const struct gp_st_item *items, int count, uint64_t *bytes, struct gp_err *err)
{
	struct gp_manifest own = *m;
	size_t manifest_bytes = 0;
	if (m->step > GP_MANIFEST_STEP_MAX)
		GP_FAIL(err, GP_INVALID, "step %" PRIu64 " is too late for a checkpoint", m->step);
	enum gp_status status = fill_folder(work, &own, items, count, &manifest_bytes, err);
	if (status == GP_OK)
		status = move_into_place(dir, work, m->step, err);
	if (status != GP_OK) {
		remove_temporary(work, m->step);
		return status;
	}
	if (bytes)
		*bytes = own.state_bytes + manifest_bytes;
	return GP_OK;
}

/* --- reading ---------------------------------------------------------------------------------------------------- */

static enum gp_status read_bytes(int fd, const char *path, char *out, size_t *len, struct gp_err *err)
{
	size_t have = 0;
	for (ssize_t n = 1; n != 0 && have <= GP_MANIFEST_BYTES; have += n > 0 ? (size_t)n : 0) {
		n = read(fd, out + have, GP_MANIFEST_BYTES + 1 - have);
		if (n < 0 && errno != EINTR)
			return gp_fail_os(err, GP_IO, "read", path);
		if (have + (n > 0 ? (size_t)n : 0) > GP_MANIFEST_BYTES)
			GP_FAIL(err, GP_INVALID, "%s: too large for a manifest", path);
	}
	*len = have;
	return GP_OK;
}

/* A file that should be there cannot be opened. What may pass, such as too many open files, is no damage. */
static enum gp_status fail_opening(struct gp_err *err, const char *path)
{
	const bool gone = errno == ENOENT || errno == ENOTDIR || errno == ELOOP;
	return gp_fail_os(err, gone ? GP_INVALID : GP_IO, "open", path);
}

static enum gp_status read_manifest(const char *path, struct gp_manifest *out, struct gp_err *err)
{
	void *bytes;
	size_t len = 0;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return fail_opening(err, path);
	enum gp_status status = gp_alloc_array(&bytes, 1, GP_MANIFEST_BYTES + 1, err);
	if (status == GP_OK) {
		status = read_bytes(fd, path, bytes, &len, err);
		if (status == GP_OK && gp_manifest_parse(bytes, len, out, err) != GP_OK)
			status = gp_err_prefix(err, "%s", path);
		gp_free(bytes);
	}
	close(fd);
	return status;
}

static enum gp_status check_place(const char *dir, uint64_t step, const struct gp_manifest *m, struct gp_err *err)
{
	struct path state;
	struct stat st;
	GP_TRY(step_path(dir, "", step, STATE_NAME, &state, err));
	if (m->step != step)
		GP_FAIL(err, GP_INVALID, "%s/step-%0*" PRIu64 ": its manifest is of step %" PRIu64, dir, STEP_DIGITS,
			step, m->step);
	if (stat(state.text, &st) != 0)
		return fail_opening(err, state.text);
	if ((uint64_t)st.st_size != m->state_bytes)
		GP_FAIL(err, GP_INVALID, "%s has %lld bytes, its manifest says %" PRIu64, state.text,
			(long long)st.st_size, m->state_bytes);
	return GP_OK;
}

enum gp_status gp_checkpoint_peek(const char *dir, uint64_t step, struct gp_manifest *out, struct gp_err *err)
{
	struct path path;
	struct gp_manifest m;
	GP_TRY(step_path(dir, "", step, MANIFEST_NAME, &path, err));
	GP_TRY(read_manifest(path.text, &m, err));
	if (check_place(dir, step, &m, err) != GP_OK) {
		gp_manifest_deinit(&m);
		return err->code;
	}
	*out = m;
	return GP_OK;
}

static enum gp_status open_state(const char *dir, struct gp_checkpoint *c, struct gp_err *err)
{
	struct path path;
	GP_TRY(step_path(dir, "", c->manifest.step, STATE_NAME, &path, err));
	GP_TRY(gp_st_open(path.text, &c->state, err));
	struct gp_span bytes = gp_st_bytes(c->state);
	if (bytes.len != c->manifest.state_bytes || XXH3_64bits(bytes.data, bytes.len) != c->manifest.state_hash)
		GP_FAIL(err, GP_INVALID, "%s is damaged: it is not what its manifest says", path.text);
	return GP_OK;
}

enum gp_status gp_checkpoint_open(const char *dir, uint64_t step, struct gp_checkpoint **out, struct gp_err *err)
{
	struct gp_checkpoint *c = gp_calloc(1, sizeof *c);
	if (!c)
		GP_FAIL(err, GP_NOMEM, "out of memory for a checkpoint");
	enum gp_status status = gp_checkpoint_peek(dir, step, &c->manifest, err);
	if (status == GP_OK)
		status = open_state(dir, c, err);
	if (status != GP_OK) {
		gp_checkpoint_close(c);
		return status;
	}
	*out = c;
	return GP_OK;
}

void gp_checkpoint_close(struct gp_checkpoint *c)
{
	if (!c)
		return;
	gp_st_close(c->state);
	gp_manifest_deinit(&c->manifest);
	gp_free(c);
}
