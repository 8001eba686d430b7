#include "support/database_server.hpp"

#include <grp.h>
#include <pwd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/error.hpp"

namespace dlock::test {
namespace {

const passwd& entry_of(const std::string& name) {
  const passwd* user = getpwnam(name.c_str());
  if (user == nullptr) throw Error(ErrorKind::host_refused, "no user " + name);
  return *user;
}

}  // namespace

ProcessOptions ServiceUser::options(int on_death) const {
  ProcessOptions options{.cwd = "/", .merge = true};
  if (geteuid() != 0) return options;
  const passwd& user = entry_of(name_);
  options.before_exec = [uid = user.pw_uid, gid = user.pw_gid, on_death] {
    if (setgroups(0, nullptr) != 0 || setgid(gid) != 0 || setuid(uid) != 0) _exit(126);
    prctl(PR_SET_PDEATHSIG, on_death);
  };
  return options;
}

void ServiceUser::own(const std::string& directory) const {
  if (geteuid() != 0) return;
  const passwd& user = entry_of(name_);
  if (chown(directory.c_str(), user.pw_uid, user.pw_gid) != 0) throw_errno("chown " + directory);
}

}  // namespace dlock::test
