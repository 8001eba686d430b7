#pragma once

#include <string>

namespace dlock {

/// A library that is loaded only when a run first needs it. It is never unloaded, because OpenSSL,
/// libpq and MariaDB's library register exit handlers.
class SharedLibrary {
 public:
  /// Loads `file`, e.g. `libpq.so.5`. The constructor and find() throw Error{host_refused}; `need`
  /// begins its message and says what the library is for and which package has it.
  SharedLibrary(const std::string& file, std::string need);

  /// Sets `function` to the library's function `name`.
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
