// Linked into every program with coverage: writes the counts even if a process ends without exit().

extern "C" {

int __llvm_profile_write_file();
void __llvm_profile_reset_counters();
[[noreturn]] void __real__exit(int code);
int __real_raise(int signal);

[[noreturn]] void __wrap__exit(int code) {
  __llvm_profile_write_file();
  __real__exit(code);
}

/// This signal may end the process.
int __wrap_raise(int signal) {
  __llvm_profile_write_file();
  __llvm_profile_reset_counters();
  return __real_raise(signal);
}
}
