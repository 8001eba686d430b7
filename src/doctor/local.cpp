#include <linux/magic.h>
#include <sys/vfs.h>

#include "base/text.hpp"
#include "doctor/checks.hpp"
#include "local/file_names.hpp"
#include "local/key_file.hpp"
#include "local/local_store.hpp"

namespace dlock {
namespace {

/// File systems that several hosts may share, where dlock cannot see the processes of the others.
/// Numbers that linux/magic.h lacks are from statfs(2).
constexpr std::pair<long, const char*> shared_file_systems[] = {
    {NFS_SUPER_MAGIC, "nfs"}, {SMB_SUPER_MAGIC, "smb"},   {0xFF534D42, "cifs"},
    {0xFE534D42, "smb2"},     {CEPH_SUPER_MAGIC, "ceph"}, {AFS_SUPER_MAGIC, "afs"},
    {V9FS_MAGIC, "9p"},       {0x65735546, "fuse"},       {0x0BD00BD0, "lustre"},
    {0x01161970, "gfs2"},     {0x7461636F, "ocfs2"},      {0x47504653, "gpfs"}};

/// Removes the scratch key's file, which would stay for a week, because it keeps the key's fence.
void sweep(const DirectorySettings& settings, const LockKey& scratch) {
  const Directory directory(settings);
  auto file = KeyFile::open(directory, key_file_name(scratch), KeyFile::Use::change,
                            {later(BootClock::now(), milliseconds(1000)), -1});
  if (file) file->remove();
}

/// Tries a lock in the directory. Creates the directory if it is the caller's own.
LocalFacts examine_directory(const DirectorySettings& settings) {
  LocalFacts facts;
  facts.directory = settings.path;
  try {
    const LockKey scratch = scratch_key();
    facts.trial = try_lock([&] { return std::make_unique<LocalStore>(settings); }, scratch, "");
    struct statfs system {};
    if (statfs(settings.path.c_str(), &system) == 0) {
      facts.file_system = static_cast<long>(system.f_type);
    }
    sweep(settings, scratch);
  } catch (const Error& error) {
    facts.trouble = error.what();
  }
  return facts;
}

}  // namespace

Findings check_local(const LocalFacts& facts) {
  const std::string shown = escaped(facts.directory), path = facts.directory + "/";
  std::string shared;
  for (const auto& [type, name] : shared_file_systems) {
    if (type == facts.file_system) shared = name;
  }
  return first_rows({
      {"directory", !facts.trouble.empty(),
       bad(facts.trouble, "fix it, or --server local:/another"), ends},
      {"directory", path.starts_with("/tmp/") || path.starts_with("/var/tmp/"),
       warn(shown + ": services with PrivateTmp= of systemd see another one, and cleaners remove "
                    "old files there",
            "a directory of its own, such as in /run or /var/lib")},
      {"directory", true, good(shown)},
      {"file-system", !shared.empty(),
       warn(shared + ": if other hosts use it, their processes cannot be seen from here",
            "a directory on a disk of this host")},
      {"file-system", true, good("of this host")},
      {"lock", true, check_lock(facts.trial, "look at that directory")},
      {"label", true,
       good("safe on this host: nothing to lose but the host; other hosts are not kept out")},
  });
}

Diagnosis diagnose(const DirectorySettings& directory) {
  return {"local:" + escaped(directory.path), "safe on this host",
          check_local(examine_directory(directory))};
}

std::string rights_text(const LocalTarget&, const DoctorOptions&) {
  throw_usage("--acl: locks on this host need none");
}

}  // namespace dlock
