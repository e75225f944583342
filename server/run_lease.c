/* SPDX-License-Identifier: Apache-2.0
 *
 * See run_lease.h. Test: tests/unit/test_run_lease.c
 */
#include "server/run_lease.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/durable.h"
#include "common/store/checkpoint.h"

#define LEASE        "lease-"
#define WORK         "work-"
#define FREE         "free"
#define DIGITS       12
#define OWNER_DIGITS (GP_OWNER_TEXT - 1)
#define LOOKS        4 /* a folder that is read while a name in it changes may seem to have none of both, or both */

/* FOLDER/lease-000000000007-OWNER */
static enum gp_status name_path(const char *folder, const char *prefix, uint64_t generation, const char *owner,
				char out[PATH_MAX], struct gp_err *err)
{
	if (snprintf(out, PATH_MAX, "%s/%s%0*" PRIu64 "-%s", folder, prefix, DIGITS, generation,
		     owner[0] ? owner : FREE) >= PATH_MAX)
		GP_FAIL(err, GP_INVALID, "the path %.100s... is too long", folder);
	return GP_OK;
}

bool gp_owner_parse(const char *text, char out[GP_OWNER_TEXT])
{
	if (strlen(text) != OWNER_DIGITS || strspn(text, "0123456789abcdef") != OWNER_DIGITS ||
	    strspn(text, "0") == OWNER_DIGITS)
		return false;
	memcpy(out, text, GP_OWNER_TEXT);
	return true;
}

/* --- looking ---------------------------------------------------------------------------------------------------- */

/* A name that is none leaves *out as it is: beside a lease there may be copies of it that another program has made. */
static bool parse_lease(const char *name, struct gp_lease_sight *out)
{
	const char *digits = name + strlen(LEASE);
	char owner[GP_OWNER_TEXT] = "";
	if (strncmp(name, LEASE, strlen(LEASE)) != 0 || strspn(digits, "0123456789") != DIGITS || digits[DIGITS] != '-')
		return false;
	const char *text = digits + DIGITS + 1;
	if (strcmp(text, FREE) != 0 && !gp_owner_parse(text, owner))
		return false;
	memcpy(out->owner, owner, sizeof owner);
	out->generation = strtoull(digits, NULL, 10);
	return true;
}

static bool is_work(const char *name)
{
	return strncmp(name, WORK, strlen(WORK)) == 0;
}

/* The generation in the name of a work folder; 0: another program has named it. */
static uint64_t generation_of(const char *work)
{
	const char *digits = work + strlen(WORK);
	return strspn(digits, "0123456789") == DIGITS ? strtoull(digits, NULL, 10) : 0;
}

struct count {
	int leases, others;
};

/* Names that begin with a dot are those of the file system (.nfs...), or of nobody that matters here. */
static enum gp_status read_folder(const char *folder, struct gp_lease_sight *out, struct count *count,
				  struct gp_err *err)
{
	DIR *d = gp_open_folder(folder);
	*count = (struct count){0, 0};
	*out = (struct gp_lease_sight){.there = false};
	if (!d)
		return errno == ENOENT ? GP_OK : gp_fail_os(err, GP_IO, "open", folder);
	for (const struct dirent *e; (e = readdir(d));) {
		if (e->d_name[0] == '.')
			continue;
		if (parse_lease(e->d_name, out))
			count->leases++;
		else if (!is_work(e->d_name))
			count->others++;
		out->there = true;
	}
	closedir(d);
	return GP_OK;
}

enum gp_status gp_run_lease_look(const char *folder, struct gp_lease_sight *out, struct gp_err *err)
{
	struct count count;
	for (int i = 0; i < LOOKS; i++) {
		GP_TRY(read_folder(folder, out, &count, err));
		out->bare = count.others == 0;
		if (!out->there || count.leases == 1)
			return GP_OK;
	}
	if (count.leases == 0)
		GP_FAIL(err, GP_INVALID,
			"the run's folder has no lease: an older version wrote it, or the file was removed; a server "
			"that is started alone on this --state-dir makes one");
	GP_FAIL(err, GP_INVALID,
		"the run's folder has %d leases: stop all servers of this --state-dir and remove all but the newest",
		count.leases);
}

/* --- making and taking --------------------------------------------------------------------------------------------- */

static enum gp_status make_file(const char *path, struct gp_err *err)
{
	const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return gp_fail_os(err, GP_IO, "create", path);
	close(fd);
	return GP_OK;
}

static enum gp_status make_work(const char *folder, uint64_t generation, const char *owner, struct gp_err *err)
{
	char work[PATH_MAX];
	GP_TRY(name_path(folder, WORK, generation, owner, work, err));
	return mkdir(work, 0700) == 0 ? GP_OK : gp_fail_os(err, GP_IO, "make the folder", work);
}

/* Whoever is outrun may be renaming it into the run at this moment: it is not here any more, either. */
static enum gp_status remove_entry(const char *path, struct gp_err *err)
{
	const enum gp_status status = gp_remove_folder(path, err);
	return status != GP_OK && err->os_code == ENOENT ? GP_OK : status;
}

/* Checkpoints that were being written or removed, and then the folder. Whoever is still at it is outrun: it can put
 * something into the folder for as long as that is there, and it is removed again. */
static enum gp_status remove_work(const char *work, struct gp_err *err)
{
	char path[PATH_MAX];
	for (;;) {
		DIR *d = gp_open_folder(work);
		if (!d)
			return errno == ENOENT ? GP_OK : gp_fail_os(err, GP_IO, "open", work);
		enum gp_status status = GP_OK;
		for (const struct dirent *e; status == GP_OK && (e = readdir(d));)
			if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
			    snprintf(path, sizeof path, "%s/%s", work, e->d_name) < (int)sizeof path)
				status = remove_entry(path, err);
		closedir(d);
		GP_TRY(status);
		if (rmdir(work) == 0 || errno == ENOENT)
			return GP_OK;
		if (errno != ENOTEMPTY && errno != EEXIST)
			return gp_fail_os(err, GP_IO, "remove", work);
	}
}

/* Those of generations up to `most`: a later one belongs to a server that has taken the run since. */
static enum gp_status remove_works(const char *folder, uint64_t most, struct gp_err *err)
{
	char path[PATH_MAX];
	enum gp_status status = GP_OK;
	DIR *d = gp_open_folder(folder);
	if (!d)
		return gp_fail_os(err, GP_IO, "open", folder);
	for (const struct dirent *e; status == GP_OK && (e = readdir(d));)
		if (is_work(e->d_name) && generation_of(e->d_name) <= most &&
		    snprintf(path, sizeof path, "%s/%s", folder, e->d_name) < (int)sizeof path)
			status = remove_work(path, err);
	closedir(d);
	return status;
}

static void discard_prepared(const char *prepared, const char *lease, const char *work)
{
	unlink(lease);
	rmdir(work);
	rmdir(prepared);
}

static enum gp_status prepare(const char *prepared, const char *lease, const char *owner, struct gp_err *err)
{
	if (mkdir(prepared, 0700) != 0 && errno != EEXIST) /* EEXIST: left behind by an attempt that failed */
		return gp_fail_os(err, GP_IO, "make the folder", prepared);
	GP_TRY(make_file(lease, err));
	return make_work(prepared, 1, owner, err);
}

/* A folder that is renamed replaces an empty one, and no other: so the run is there with its lease, or not at all. */
enum gp_status gp_run_lease_make(const char *folder, const char *prepared, const char *owner, struct gp_err *err)
{
	char lease[PATH_MAX], work[PATH_MAX];
	GP_TRY(name_path(prepared, LEASE, 1, owner, lease, err));
	GP_TRY(name_path(prepared, WORK, 1, owner, work, err));
	discard_prepared(prepared, lease, work);
	enum gp_status status = prepare(prepared, lease, owner, err);
	if (status == GP_OK && rename(prepared, folder) != 0) {
		const bool there = errno == ENOTEMPTY || errno == EEXIST;
		status = gp_fail_os(err, there ? GP_CANCELED : GP_IO, "make", folder);
	}
	/* Over NFS a request that was sent twice may fail although it was done. */
	struct gp_err ignored;
	if (status != GP_OK && gp_run_lease_check(folder, 1, owner, &ignored) == GP_OK)
		status = GP_OK;
	if (status != GP_OK)
		discard_prepared(prepared, lease, work);
	return status;
}

enum gp_status gp_run_lease_check(const char *folder, uint64_t generation, const char *owner, struct gp_err *err)
{
	char lease[PATH_MAX];
	GP_TRY(name_path(folder, LEASE, generation, owner, lease, err));
	if (access(lease, F_OK) == 0)
		return GP_OK;
	if (errno != ENOENT)
		return gp_fail_os(err, GP_IO, "look for", lease);
	GP_FAIL(err, GP_CANCELED, "another server has the run now");
}

static enum gp_status rename_lease(const char *folder, const struct gp_lease_sight *from, uint64_t generation,
				   const char *owner, struct gp_err *err)
{
	char before[PATH_MAX], after[PATH_MAX];
	GP_TRY(name_path(folder, LEASE, from->generation, from->owner, before, err));
	GP_TRY(name_path(folder, LEASE, generation, owner, after, err));
	if (rename(before, after) == 0)
		return GP_OK;
	if (errno != ENOENT)
		return gp_fail_os(err, GP_IO, "rename", before);
	return gp_run_lease_check(folder, generation, owner, err); /* over NFS, as above */
}

/* Whoever takes the run from this server renames the lease before it removes work folders: so either it removes this one, too,
 * or the look at the lease, which comes after the making, finds it gone. */
static enum gp_status make_own_work(const char *folder, uint64_t generation, const char *owner, struct gp_err *err)
{
	char work[PATH_MAX];
	GP_TRY(name_path(folder, WORK, generation, owner, work, err));
	GP_TRY(make_work(folder, generation, owner, err));
	const enum gp_status status = gp_run_lease_check(folder, generation, owner, err);
	if (status == GP_CANCELED)
		rmdir(work);
	return status;
}

enum gp_status gp_run_lease_settle(const char *folder, uint64_t generation, const char *owner, struct gp_err *err)
{
	struct gp_err ignored;
	enum gp_status status = remove_works(folder, generation - 1, err);
	if (status == GP_OK)
		status = gp_run_lease_check(folder, generation, owner, err);
	if (status == GP_OK)
		status = gp_checkpoint_clean(folder, err); /* what an older version has left half written */
	if (status == GP_OK)
		status = make_own_work(folder, generation, owner, err);
	if (status != GP_OK)
		gp_run_lease_give(folder, generation, owner, &ignored);
	return status;
}

enum gp_status gp_run_lease_take(const char *folder, const struct gp_lease_sight *seen, const char *owner,
				 struct gp_err *err)
{
	return rename_lease(folder, seen, seen->generation + 1, owner, err);
}

enum gp_status gp_run_lease_work(const char *folder, uint64_t generation, const char *owner, char out[PATH_MAX],
				 struct gp_err *err)
{
	return name_path(folder, WORK, generation, owner, out, err);
}

/* --- giving ------------------------------------------------------------------------------------------------------ */

/* Whoever looks between the two steps finds an empty folder, which is as good as none. */
static enum gp_status remove_run(const char *folder, uint64_t generation, const char *owner, struct gp_err *err)
{
	char lease[PATH_MAX];
	GP_TRY(name_path(folder, LEASE, generation, owner, lease, err));
	if (unlink(lease) != 0)
		return gp_fail_os(err, errno == ENOENT ? GP_CANCELED : GP_IO, "remove", lease);
	if (rmdir(folder) != 0 && errno != ENOENT && errno != ENOTEMPTY && errno != EEXIST)
		return gp_fail_os(err, GP_IO, "remove", folder);
	return GP_OK;
}

enum gp_status gp_run_lease_give(const char *folder, uint64_t generation, const char *owner, struct gp_err *err)
{
	char work[PATH_MAX];
	struct gp_lease_sight seen;
	GP_TRY(gp_run_lease_check(folder, generation, owner, err));
	GP_TRY(name_path(folder, WORK, generation, owner, work, err));
	GP_TRY(remove_work(work, err));
	GP_TRY(gp_run_lease_look(folder, &seen, err));
	if (seen.generation != generation || strcmp(seen.owner, owner) != 0)
		GP_FAIL(err, GP_CANCELED, "another server has the run now");
	return seen.bare ? remove_run(folder, generation, owner, err)
			 : rename_lease(folder, &seen, generation, "", err);
}

enum gp_status gp_run_lease_introduce(const char *folder, struct gp_err *err)
{
	char lease[PATH_MAX];
	struct gp_lease_sight seen;
	struct count count;
	GP_TRY(read_folder(folder, &seen, &count, err));
	if (!seen.there)
		rmdir(folder);
	if (!seen.there || count.leases > 0)
		return GP_OK;
	GP_TRY(name_path(folder, LEASE, 0, "", lease, err));
	return make_file(lease, err);
}
