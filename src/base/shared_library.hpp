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

  /// The address of a function, which becomes a pointer of any type.
  class Function {
   public:
    explicit Function(void* address) : address_(address) {}
    template <typename Type>
    operator Type*() const {
      return reinterpret_cast<Type*>(address_);
    }

   private:
    void* address_;
  };
  Function find(const char* name) const;

 private:
  [[noreturn]] void refuse() const;

  std::string need_;
  void* handle_;
};

}  // namespace dlock

/// Declares a member that points to the library's function `name` and has the same name. The class
/// must declare its SharedLibrary as `library` before this member.
#define DLOCK_LIBRARY_FUNCTION(name) decltype(&::name) name{library.find(#name)};
/// Declares five such members.
#define DLOCK_LIBRARY_FUNCTIONS(a, b, c, d, e) \
  DLOCK_LIBRARY_FUNCTION(a)                    \
  DLOCK_LIBRARY_FUNCTION(b)                    \
  DLOCK_LIBRARY_FUNCTION(c) DLOCK_LIBRARY_FUNCTION(d) DLOCK_LIBRARY_FUNCTION(e)
