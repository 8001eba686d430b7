# The toolchain for arm64: Debian's cross compiler, and the libraries that Debian installs beside
# those of this machine. The headers of libpq, libmariadb and libzookeeper are this machine's: they
# are the same for both, and their packages cannot be installed twice.

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
# The libc of the compiler's own packages gets no security updates.
set(CMAKE_EXE_LINKER_FLAGS_INIT -B/usr/lib/aarch64-linux-gnu)
# FindOpenSSL looks first where pkg-config says, which would be this machine's.
set(ENV{PKG_CONFIG_LIBDIR} /usr/lib/aarch64-linux-gnu/pkgconfig)
