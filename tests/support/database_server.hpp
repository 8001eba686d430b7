#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "sql/sql_backend.hpp"
#include "support/process.hpp"

namespace dlock::test {

/// A database server that a test starts; the interface that tests of several databases share.
class DatabaseServer {
 public:
  virtual ~DatabaseServer() = default;

  /// The URL for dlock, over the socket. The user is the administrator unless another is named.
  virtual std::string url(const std::string& user = {}, const std::string& database = {}) const = 0;
  /// The same over TCP; `login` is `USER` or `USER:PASSWORD`.
  virtual std::string tcp_url(const std::string& login) const = 0;
  /// The variable from which the client library reads a password.
  virtual std::string password_variable() const = 0;
  virtual std::string log() const = 0;

  /// Runs statements on the server's own connection; returns their results. Error if one fails.
  std::vector<SqlResult> query(const std::string& statements);
  /// The first column of the last result, one row a line.
  std::string text(const std::string& statements);
  /// Recreates a user that may log in with this password, and may create tables or not.
  virtual void make_user(const std::string& name, const std::string& password,
                         bool creates_tables) = 0;
  /// Grants a user read access to the table, and nothing else.
  virtual void let_read(const std::string& name) = 0;
  /// Sets the body of every row.
  virtual void set_bodies(const std::string& body) = 0;
  /// The number of connections that dlock has open.
  virtual int connections() = 0;

  virtual void kill_hard() = 0;  ///< like a crash: no clean shutdown
  virtual void start() = 0;
  /// Becomes the standby of a primary that it never reaches.
  virtual void become_standby() = 0;

 protected:
  /// Waits until the server answers on `connection`, which becomes its own.
  void await_start(std::unique_ptr<SqlConnection> connection);

  std::unique_ptr<SqlConnection> connection_;
};

/// The user that a server runs as if the test is root, as these servers refuse to run as root.
class ServiceUser {
 public:
  /// `name` is the user that the server's package creates. The user is switched only if the test is
  /// root.
  explicit ServiceUser(std::string name) : name_(std::move(name)) {}

  /// Options for a process of this user: both outputs in one, and the signal `on_death` when the
  /// test dies.
  ProcessOptions options(int on_death) const;
  /// Makes the user the owner of a directory.
  void own(const std::string& directory) const;

 private:
  std::string name_;
};

/// Waits until the server answers at this connection; false if it does not.
bool comes_up(SqlConnection& connection);

}  // namespace dlock::test
