// The minimum of any lock on a Redis, without arguments, renewals, deadlines or checks: connect,
// one script call, a command, one script call. dlock's cost is measured against it.
//
//   floor HOST PORT KEY -n COMMAND...    refused at once if held
//   floor HOST PORT KEY -w COMMAND...    waits: the release of the holder hands over

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <initializer_list>
#include <string>
#include <string_view>

namespace {

constexpr std::string_view take_script =
    "if redis.call('SET',KEYS[1],ARGV[1],'NX','PX',30000) then "
    "if ARGV[2]=='-w' then redis.call('LPUSH',KEYS[3],1) end return 1 end "
    "if ARGV[2]=='-w' then redis.call('RPUSH',KEYS[2],ARGV[1]) end return 0";
constexpr std::string_view give_script =
    "if redis.call('GET',KEYS[1])~=ARGV[1] then return 0 end "
    "local next=redis.call('LPOP',KEYS[2]) if not next then return redis.call('DEL',KEYS[1]) end "
    "redis.call('SET',KEYS[1],next,'PX',30000) redis.call('LPUSH',KEYS[1]..next,1) return 1";

std::string request(std::initializer_list<std::string_view> words) {
  std::string text = "*" + std::to_string(words.size()) + "\r\n";
  for (const auto word : words) {
    text += "$" + std::to_string(word.size()) + "\r\n";
    text += word;
    text += "\r\n";
  }
  return text;
}

class Server {
 public:
  Server(const char* host, int port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int on = 1;
    setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<std::uint16_t>(port));
    inet_pton(AF_INET, host, &to.sin_addr);
    if (connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof to) != 0) _exit(69);
  }
  void send(const std::string& text) const {
    if (write(fd_, text.data(), text.size()) != static_cast<ssize_t>(text.size())) _exit(69);
  }
  /// Reads until `lines` lines have come.
  std::string receive(int lines) const {
    std::string all;
    char block[512];
    while (lines > 0) {
      const auto got = read(fd_, block, sizeof block);
      if (got <= 0) _exit(69);
      for (ssize_t i = 0; i < got; ++i) lines -= block[i] == '\n' ? 1 : 0;
      all.append(block, static_cast<std::size_t>(got));
    }
    return all;
  }

 private:
  int fd_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 6) return 64;
  const Server server(argv[1], std::atoi(argv[2]));
  const std::string key = argv[3];
  const std::string_view mode = argv[4];
  const std::string token = std::to_string(getpid());
  const std::string queue = key + ":queue";
  const std::string own = key + token;
  std::string ask = request({"EVAL", take_script, "3", key, queue, own, token, mode});
  if (mode == "-w") ask += request({"BLPOP", own, "0"});
  server.send(ask);
  // An integer; after it, the list's name and element.
  const std::string answer = server.receive(mode == "-w" ? 6 : 1);
  if (mode == "-n" && answer != ":1\r\n") return 75;
  pid_t pid = 0;
  if (posix_spawnp(&pid, argv[5], nullptr, nullptr, argv + 5, environ) != 0) return 127;
  int status = 0;
  waitpid(pid, &status, 0);
  server.send(request({"EVAL", give_script, "2", key, queue, token}));
  server.receive(1);
  return WEXITSTATUS(status);
}
