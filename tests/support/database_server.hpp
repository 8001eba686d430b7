#pragma once

#include <string>
#include <vector>

#include "base/clock.hpp"
#include "support/process.hpp"

namespace dlock::test {

/// A database server of the test's own, whatever its kind: what tests of several kinds ask of it.
class DatabaseServer {
 public:
  virtual ~DatabaseServer() = default;

  /// What dlock is given: by the socket, as the administrator unless another user is named.
  virtual std::string url(const std::string& user = {}, const std::string& database = {}) const = 0;
  /// The same over TCP; `login` is `USER` or `USER:PASSWORD`.
  virtual std::string tcp_url(const std::string& login) const = 0;
  /// The variable in which the client library looks for a password.
  virtual std::string password_variable() const = 0;
  virtual std::string log() const = 0;

  /// Runs statements on a connection of the server's own: the first column of the last result, line
  /// by line. Error if one fails.
  virtual std::string text(const std::string& statements) = 0;
  /// Makes a user anew that may log in, with this password, and create tables or not.
  virtual void make_user(const std::string& name, const std::string& password,
                         bool creates_tables) = 0;
  /// Lets a user read the table, and no more.
  virtual void let_read(const std::string& name) = 0;
  /// Sets the body of every row.
  virtual void set_bodies(const std::string& body) = 0;
  /// How many connections of dlock there are.
  virtual int connections() = 0;

  virtual void kill_hard() = 0;  ///< as after a crash: no clean end
  virtual void start() = 0;
  /// Becomes the standby of a primary that it never reaches.
  virtual void become_standby() = 0;
};

}  // namespace dlock::test
