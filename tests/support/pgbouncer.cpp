#include "support/pgbouncer.hpp"

#include <signal.h>
#include <unistd.h>

#include "base/error.hpp"
#include "support/eventually.hpp"
#include "support/files.hpp"

namespace dlock::test {
namespace {

constexpr const char* program_of_pooler = "/usr/sbin/pgbouncer";

}  // namespace

bool PgBouncer::is_installed() {
  return PostgresServer::is_installed() && access(program_of_pooler, X_OK) == 0;
}

PgBouncer::PgBouncer(const std::string& host, int port, const std::string& mode, int sessions) {
  user_.own(dir_.path());
  write_file(dir_ / "ini", "[databases]\n* = user=postgres host=" + host +
                               " port=" + std::to_string(port) +
                               "\n[pgbouncer]\nauth_type = any\nmax_client_conn = 500\n"
                               "listen_port = 5432\nunix_socket_dir = " +
                               dir_.path() + "\npool_mode = " + mode +
                               "\ndefault_pool_size = " + std::to_string(sessions) + "\n");
  user_.own(dir_ / "ini");
  start();
}

void PgBouncer::start() {
  unlink((dir_ / ".s.PGSQL.5432").c_str());
  process_.emplace(std::vector<std::string>{program_of_pooler, dir_ / "ini"},
                   user_.options(SIGKILL));
  const auto connection = postgres_connection(url(), "pgbouncer");
  if (!comes_up(*connection)) {
    throw Error(ErrorKind::host_refused, "pgbouncer did not come up: " + process_->out());
  }
}

void PgBouncer::kill_hard() {
  if (!process_) return;
  process_->kill_hard();
  process_.reset();
}

std::string PgBouncer::url() const {
  return "postgres:///postgres?host=" + dir_.path() + "&port=5432&user=postgres";
}

}  // namespace dlock::test
