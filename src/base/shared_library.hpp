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

// Each rescan of the preprocessor expands one more name of a list, up to 256.
#define DLOCK_RESCAN1(...) __VA_ARGS__
#define DLOCK_RESCAN4(...) DLOCK_RESCAN1(DLOCK_RESCAN1(DLOCK_RESCAN1(DLOCK_RESCAN1(__VA_ARGS__))))
#define DLOCK_RESCAN16(...) DLOCK_RESCAN4(DLOCK_RESCAN4(DLOCK_RESCAN4(DLOCK_RESCAN4(__VA_ARGS__))))
#define DLOCK_RESCAN64(...) \
  DLOCK_RESCAN16(DLOCK_RESCAN16(DLOCK_RESCAN16(DLOCK_RESCAN16(__VA_ARGS__))))
#define DLOCK_RESCAN256(...) \
  DLOCK_RESCAN64(DLOCK_RESCAN64(DLOCK_RESCAN64(DLOCK_RESCAN64(__VA_ARGS__))))
#define DLOCK_NO_ARGUMENTS ()
#define DLOCK_NEXT_FUNCTION() DLOCK_FIRST_FUNCTION
#define DLOCK_FIRST_FUNCTION(name, ...)         \
  decltype(&::name) name = library.find(#name); \
  __VA_OPT__(DLOCK_NEXT_FUNCTION DLOCK_NO_ARGUMENTS(__VA_ARGS__))

/// Declares a member for each function of a library, by its own name, after a member `library`.
#define DLOCK_LIBRARY_FUNCTIONS(...) DLOCK_RESCAN256(DLOCK_FIRST_FUNCTION(__VA_ARGS__))
