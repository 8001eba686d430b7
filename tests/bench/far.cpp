// A link between two network namespaces that delays every packet, SYN included, each way: far
// MILLISECONDS. Prints two of its own descriptors, which are the namespaces, for `nsenter
// --net=/proc/PID/fd/N`; this machine is 10.77.0.1 and 10.77.0.2 in them. It ends with its stdin,
// and everything with it.

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <string>

namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void fail(const char* what) {
  std::perror(what);
  std::exit(1);
}

void set_address(ifreq& request, const char* address) {
  auto* to = reinterpret_cast<sockaddr_in*>(&request.ifr_addr);
  to->sin_family = AF_INET;
  inet_pton(AF_INET, address, &to->sin_addr);
}

void bring_up(int control, ifreq& request) {
  if (ioctl(control, SIOCGIFFLAGS, &request) < 0) fail("SIOCGIFFLAGS");
  request.ifr_flags |= IFF_UP | IFF_RUNNING;
  if (ioctl(control, SIOCSIFFLAGS, &request) < 0) fail("SIOCSIFFLAGS");
}

/// One end: its own namespace, and a device whose packets this program carries.
struct End {
  int space;
  int device;
};

End make_end(const char* address) {
  if (unshare(CLONE_NEWNET) < 0) fail("unshare");
  End end{open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC),
          open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC)};
  if (end.space < 0 || end.device < 0) fail("open");
  ifreq device{};
  std::strncpy(device.ifr_name, "far0", IFNAMSIZ - 1);
  device.ifr_flags = IFF_TUN | IFF_NO_PI;
  if (ioctl(end.device, TUNSETIFF, &device) < 0) fail("TUNSETIFF");
  const int control = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  set_address(device, address);
  if (ioctl(control, SIOCSIFADDR, &device) < 0) fail("SIOCSIFADDR");
  set_address(device, "255.255.255.0");
  if (ioctl(control, SIOCSIFNETMASK, &device) < 0) fail("SIOCSIFNETMASK");
  bring_up(control, device);
  ifreq loopback{};
  std::strncpy(loopback.ifr_name, "lo", IFNAMSIZ - 1);
  bring_up(control, loopback);
  close(control);
  return end;
}

struct Packet {
  Clock::time_point due;
  std::string bytes;
};

/// The packets in one direction.
class Lane {
 public:
  Lane(int from, int to, Clock::duration delay) : from_(from), to_(to), delay_(delay) {}

  void take() {
    std::array<char, 65536> block;
    while (true) {
      const auto got = read(from_, block.data(), block.size());
      if (got <= 0) return;
      on_the_way_.push_back({Clock::now() + delay_, {block.data(), static_cast<size_t>(got)}});
    }
  }
  void deliver() {
    while (!on_the_way_.empty() && on_the_way_.front().due <= Clock::now()) {
      const std::string& bytes = on_the_way_.front().bytes;
      // A full device drops a packet, as a full link does.
      if (write(to_, bytes.data(), bytes.size()) < 0) std::perror("write");
      on_the_way_.pop_front();
    }
  }
  Clock::time_point next() const {
    return on_the_way_.empty() ? Clock::time_point::max() : on_the_way_.front().due;
  }

 private:
  int from_;
  int to_;
  Clock::duration delay_;
  std::deque<Packet> on_the_way_;
};

}  // namespace

int main(int argc, char** argv) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (argc != 2) return 64;
  const auto delay = std::chrono::milliseconds(std::atoi(argv[1]));
  const End near_end = make_end("10.77.0.1");
  const End far_end = make_end("10.77.0.2");
  std::printf("%d %d\n", near_end.space, far_end.space);
  std::fflush(stdout);
  Lane there(near_end.device, far_end.device, delay);
  Lane back(far_end.device, near_end.device, delay);
  while (true) {
    pollfd fds[] = {{near_end.device, POLLIN, 0}, {far_end.device, POLLIN, 0}, {0, POLLIN, 0}};
    const auto next = std::min(there.next(), back.next());
    const auto left = std::chrono::nanoseconds(next - Clock::now()).count();
    const long nanoseconds = left > 0 ? static_cast<long>(left) : 0;
    const timespec timeout{nanoseconds / 1'000'000'000, nanoseconds % 1'000'000'000};
    ppoll(fds, 3, next == Clock::time_point::max() ? nullptr : &timeout, nullptr);
    if (fds[2].revents != 0) return 0;
    there.take();
    back.take();
    there.deliver();
    back.deliver();
  }
}
