#pragma once

#include <string>

namespace dlock {

/// A library that only some runs need, opened by these when they first need it. It is never closed
/// again: the libraries of OpenSSL, PostgreSQL and MariaDB have exit handlers of their own.
class SharedLibrary {
 public:
  /// Opens `file`, as `libpq.so.5`. `need` begins the message of Error{host_refused} that this and
  /// find() throw: what is to be done with the library, and which package has it.
  SharedLibrary(const std::string& file, std::string need);

  /// Looks for its function `name`.
  template <typename Function>
  void find(const char* name, Function*& function) const {
    function = reinterpret_cast<Function*>(address_of(name));
  }

 private:
  void* address_of(const char* name) const;
  [[noreturn]] void refuse() const;

  std::string need_;
  void* handle_;
};

}  // namespace dlock
