#include "support/database_server.hpp"

#include <grp.h>
#include <pwd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <utility>

#include "base/error.hpp"
#include "support/eventually.hpp"

namespace dlock::test {
namespace {

CallOptions in_ten_seconds() { return {later(BootClock::now(), std::chrono::seconds(10)), -1}; }

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

bool comes_up(SqlConnection& connection) {
  const auto answers = [&] {
    connection.query("SELECT 1", in_ten_seconds());
    return true;
  };
  return eventually([&] { return without_error(answers); }, time_to_come_up);
}

void DatabaseServer::await_start(std::unique_ptr<SqlConnection> connection) {
  connection_ = std::move(connection);
  if (!comes_up(*connection_)) {
    throw Error(ErrorKind::host_refused, "the database did not come up: " + log());
  }
}

std::vector<SqlResult> DatabaseServer::query(const std::string& statements) {
  auto results = connection_->query(statements, in_ten_seconds());
  if (results.back().failed()) {
    throw Error(ErrorKind::bug, statements + ": " + results.back().message);
  }
  return results;
}

std::string DatabaseServer::text(const std::string& statements) {
  const auto results = query(statements);
  std::string text;
  for (const auto& row : results.back().rows) text += row[0].value_or("") + "\n";
  return text;
}

}  // namespace dlock::test
