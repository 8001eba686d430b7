#include "support/database_server.hpp"

#include <utility>

#include "base/error.hpp"
#include "support/eventually.hpp"

namespace dlock::test {
namespace {

CallOptions in_ten_seconds() { return {later(BootClock::now(), std::chrono::seconds(10)), -1}; }

}  // namespace

void DatabaseServer::await_start(std::unique_ptr<SqlConnection> connection) {
  connection_ = std::move(connection);
  const bool up = eventually(
      [&] {
        try {
          connection_->query("SELECT 1", in_ten_seconds());
          return true;
        } catch (const Error&) {
          return false;
        }
      },
      time_to_come_up);
  if (!up) throw Error(ErrorKind::host_refused, "the database did not come up: " + log());
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
