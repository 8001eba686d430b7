#include "base/shared_library.hpp"

#include <dlfcn.h>

#include <utility>

#include "base/error.hpp"
#include "base/text.hpp"

namespace dlock {

SharedLibrary::SharedLibrary(const std::string& file, std::string need)
    : need_(std::move(need)), handle_(dlopen(file.c_str(), RTLD_LAZY | RTLD_LOCAL)) {
  if (handle_ == nullptr) refuse();
}

SharedLibrary::Function SharedLibrary::find(const char* name) const {
  void* const address = dlsym(handle_, name);
  if (address == nullptr) refuse();
  return Function(address);
}

void SharedLibrary::refuse() const {
  const char* why = dlerror();
  throw Error(ErrorKind::host_refused, need_ + ": " + escaped(why == nullptr ? "" : why));
}

}  // namespace dlock
