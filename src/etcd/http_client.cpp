#include "etcd/http_client.hpp"

#include <fcntl.h>

#include <algorithm>
#include <filesystem>
#include <new>
#include <set>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "base/text.hpp"
#include "base/wait.hpp"
#include "net/tls_files.hpp"

namespace dlock {
namespace {

/// A value of etcd's has 1.5 MiB at most, and 2 MiB in base64; of dlock's records each has less.
constexpr std::size_t largest_answer = 2u << 20;
constexpr milliseconds longest_poll{3'600'000};
constexpr milliseconds longest_poll_of_connect{100};
/// Of a stream, which has no deadline.
constexpr milliseconds longest_connect{10'000};

template <typename Value>
CURLcode set_option(CURL* handle, CURLoption option, Value value) {
  return libcurl().curl_easy_setopt(handle, option, value);
}

/// The library leaves its sockets to the command, were it not for this.
int close_on_exec(void*, curl_socket_t fd, curlsocktype) {
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  return CURL_SOCKOPT_OK;
}

/// The descriptors that a command would inherit, as far as libraries get such numbers.
std::set<int> inheritable_descriptors() {
  constexpr int most_looked_at = 256;
  std::set<int> found;
  for (int fd = 0; fd < most_looked_at; ++fd) {
    const int flags = fcntl(fd, F_GETFD);
    if (flags >= 0 && (flags & FD_CLOEXEC) == 0) found.insert(fd);
  }
  return found;
}

/// More than `Transfer` takes.
bool is_too_large(CURLcode code) { return code == CURLE_WRITE_ERROR; }

/// By `Transfer::before_sending`, instead of sending it twice.
bool is_cut_off(CURLcode code) { return code == CURLE_ABORTED_BY_CALLBACK; }

}  // namespace

/// A request under way: what libcurl points to stays where it is.
struct HttpClient::Transfer {
  /// Called by libcurl with a part of the answer to `transfer`.
  static std::size_t append(char* data, std::size_t size, std::size_t count, void* transfer) {
    auto& into = *static_cast<Transfer*>(transfer);
    const std::string_view more(data, size * count);
    if (into.answer.size() + more.size() <= largest_answer) {
      try {
        into.answer += more;
        return more.size();
      } catch (const std::bad_alloc&) {
        // Not through libcurl, which is no C++: it ends the transfer.
      }
    }
    into.taken = into.looked_at = 0;
    into.answer.clear();
    return 0;
  }

  /// Called by libcurl whenever it is about to send the request of `transfer`: after a kept
  /// connection has ended without an answer, once more on another.
  static int before_sending(void* transfer, char*, char*, int, int) {
    auto& of = *static_cast<Transfer*>(transfer);
    if (of.sent && of.once) return CURL_PREREQFUNC_ABORT;
    of.sent = true;
    return CURL_PREREQFUNC_OK;
  }

  /// Nothing if none has come whole.
  std::optional<std::string> next_line() {
    const auto end = answer.find('\n', looked_at);
    looked_at = std::min(end, answer.size());
    if (end == std::string::npos) return std::nullopt;
    std::string line = answer.substr(taken, end - taken);
    taken = looked_at = end + 1;
    // Not each time, as it moves all that follows.
    if (taken > answer.size() / 2) {
      answer.erase(0, taken);
      taken = looked_at = 0;
    }
    return line;
  }

  CurlPtr handle;
  CurlListPtr connect_to;
  CurlListPtr resolved;
  std::string body;
  std::string answer;
  std::size_t taken = 0;      ///< of it by next_line()
  std::size_t looked_at = 0;  ///< up to here no further line ends
  bool once = false;
  bool sent = false;  ///< at least in part
  char trouble[CURL_ERROR_SIZE] = "";
  bool done = false;
  CURLcode code = CURLE_OK;
};

HttpClient::HttpClient(std::optional<TlsSettings> tls) : tls_(std::move(tls)) {}

HttpClient::~HttpClient() { close(); }

void HttpClient::set_authorization(const std::string& value) {
  close_stream();  // libcurl points to the headers of its request
  authorization_ = value;
  headers_.reset();
}

CURLM* HttpClient::multi() {
  if (multi_ == nullptr) {
    const auto of_the_caller = inheritable_descriptors();
    multi_.reset(libcurl().curl_multi_init());
    for (const int fd : inheritable_descriptors()) {
      if (!of_the_caller.contains(fd)) fcntl(fd, F_SETFD, FD_CLOEXEC);
    }
  }
  if (headers_ == nullptr) {
    std::vector<std::string> lines{"Content-Type: application/json", "Expect:"};
    if (!authorization_.empty()) lines.push_back("Authorization: " + authorization_);
    for (const std::string& line : lines) {
      curl_slist* const longer = libcurl().curl_slist_append(headers_.get(), line.c_str());
      static_cast<void>(headers_.release());
      headers_.reset(longer);
    }
  }
  if (multi_ == nullptr || headers_ == nullptr) {
    throw Error(ErrorKind::host_refused, "out of memory");
  }
  return multi_.get();
}

void HttpClient::encrypt(CURL* handle) {
  if (!tls_) return;
  // libcurl says of a wrong file neither its name nor what it holds.
  if (!files_checked_) client_context(*tls_);
  files_checked_ = true;
  std::error_code none;
  if (!tls_->ca.empty()) {
    const bool folder = std::filesystem::is_directory(tls_->ca, none);
    // A handle begins with the file and the folder of the system, and trusts either.
    set_option(handle, CURLOPT_CAPATH, folder ? tls_->ca.c_str() : nullptr);
    set_option(handle, CURLOPT_CAINFO, folder ? nullptr : tls_->ca.c_str());
    // The file may be replaced while a lock is held; libcurl would keep what was in it for a day.
    set_option(handle, CURLOPT_CA_CACHE_TIMEOUT, 0L);
  }
  if (tls_->certificate.empty()) return;
  set_option(handle, CURLOPT_SSLCERT, tls_->certificate.c_str());
  set_option(handle, CURLOPT_SSLKEY, tls_->key.c_str());
  // An encrypted key may have taken its place since, and OpenSSL would ask on the terminal.
  set_option(handle, CURLOPT_KEYPASSWD, "");
}

std::unique_ptr<HttpClient::Transfer> HttpClient::begin(const HttpAddress& to, std::string body,
                                                        bool once, milliseconds time) {
  auto transfer = std::make_unique<Transfer>();
  CURLM* const all = multi();
  transfer->handle.reset(libcurl().curl_easy_init());
  if (transfer->handle == nullptr) throw Error(ErrorKind::host_refused, "out of memory");
  transfer->body = std::move(body);
  transfer->once = once;
  CURL* const handle = transfer->handle.get();
  set_option(handle, CURLOPT_URL, to.url.c_str());
  if (!to.connect_to.empty()) {
    transfer->connect_to.reset(libcurl().curl_slist_append(nullptr, to.connect_to.c_str()));
    set_option(handle, CURLOPT_CONNECT_TO, transfer->connect_to.get());
  }
  if (!to.resolved.empty()) {
    transfer->resolved.reset(libcurl().curl_slist_append(nullptr, to.resolved.c_str()));
    set_option(handle, CURLOPT_RESOLVE, transfer->resolved.get());
  }
  set_option(handle, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  set_option(handle, CURLOPT_HTTPHEADER, headers_.get());
  set_option(handle, CURLOPT_POSTFIELDSIZE, static_cast<long>(transfer->body.size()));
  set_option(handle, CURLOPT_POSTFIELDS, transfer->body.c_str());
  set_option(handle, CURLOPT_WRITEFUNCTION, &Transfer::append);
  set_option(handle, CURLOPT_WRITEDATA, static_cast<void*>(transfer.get()));
  set_option(handle, CURLOPT_PREREQDATA, static_cast<void*>(transfer.get()));
  // Before its version 7.80 libcurl does not tell: then it may have been sent whenever it fails.
  const auto tells = set_option(handle, CURLOPT_PREREQFUNCTION, &Transfer::before_sending);
  transfer->sent = tells != CURLE_OK;
  set_option(handle, CURLOPT_ERRORBUFFER, transfer->trouble);
  set_option(handle, CURLOPT_NOSIGNAL, 1L);
  // libcurl gives a silent address half of this, and by default that is minutes.
  const auto connect_by = std::clamp(time, milliseconds(1), longest_poll);
  set_option(handle, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(connect_by.count()));
  set_option(handle, CURLOPT_SOCKOPTFUNCTION, &close_on_exec);
  // Not through what http_proxy names: that is for the web.
  set_option(handle, CURLOPT_PROXY, "");
  // As dlock's own sockets: a stream that has died without a word is given up within a minute.
  set_option(handle, CURLOPT_TCP_KEEPALIVE, 1L);
  set_option(handle, CURLOPT_TCP_KEEPIDLE, 15L);
  set_option(handle, CURLOPT_TCP_KEEPINTVL, 5L);
  encrypt(handle);
  under_way_.push_back(transfer.get());
  libcurl().curl_multi_add_handle(all, handle);
  return transfer;
}

void HttpClient::end(std::unique_ptr<Transfer>& transfer) {
  if (transfer == nullptr) return;
  libcurl().curl_multi_remove_handle(multi_.get(), transfer->handle.get());
  std::erase(under_way_, transfer.get());
  transfer.reset();
}

bool HttpClient::work() {
  int running = 0, left = 0;
  libcurl().curl_multi_perform(multi_.get(), &running);
  bool ended = false;
  while (const CURLMsg* message = libcurl().curl_multi_info_read(multi_.get(), &left)) {
    if (message->msg != CURLMSG_DONE) continue;
    for (Transfer* transfer : under_way_) {
      if (transfer->handle.get() != message->easy_handle) continue;
      transfer->done = ended = true;
      transfer->code = message->data.result;
    }
  }
  return ended;
}

bool HttpClient::wait(Deadline until, int cancel_fd) {
  // libcurl does not say when it is time for a host's next address.
  const bool connects = std::any_of(under_way_.begin(), under_way_.end(),
                                    [](const Transfer* each) { return !each->sent; });
  const auto longest = connects ? longest_poll_of_connect : longest_poll;
  const auto most = std::min(left_until(until), longest);
  curl_waitfd extra{cancel_fd, CURL_WAIT_POLLIN, 0};
  const bool can_cancel = cancel_fd >= 0;
  libcurl().curl_multi_poll(multi_.get(), &extra, can_cancel ? 1 : 0,
                            static_cast<int>(most.count()), nullptr);
  return !can_cancel || !readable(cancel_fd);
}

void HttpClient::post(std::vector<HttpCall>& calls, const CallOptions& call_options) {
  // Ends those that were begun, also if another cannot be.
  struct Begun {
    HttpClient& client;
    std::vector<std::unique_ptr<Transfer>> transfers{};
    ~Begun() {
      for (auto& each : transfers) client.end(each);
    }
  } begun{*this};
  auto& transfers = begun.transfers;
  transfers.reserve(calls.size());
  for (HttpCall& call : calls) {
    const auto left = left_until(call_options.deadline);
    transfers.push_back(begin(call.to, call.body, call.once, left));
  }
  const auto all_done = [&] {
    return std::all_of(transfers.begin(), transfers.end(),
                       [](const auto& each) { return each->done; });
  };
  bool interrupted = false;
  work();
  if (call_options.sent != nullptr) call_options.sent->raise();
  while (!all_done() && !interrupted && BootClock::now() < call_options.deadline) {
    interrupted = !wait(call_options.deadline, call_options.cancel_fd);
    work();
  }
  for (std::size_t i = 0; i < calls.size(); ++i) {
    HttpCall& call = calls[i];
    Transfer& transfer = *transfers[i];
    call.code = transfer.done ? transfer.code : CURLE_OPERATION_TIMEDOUT;
    if (call.code == CURLE_OK) {
      call.answer = std::move(transfer.answer);
      libcurl().curl_easy_getinfo(transfer.handle.get(), CURLINFO_RESPONSE_CODE, &call.status);
    } else {
      const std::string said = transfer.trouble;
      call.too_large = is_too_large(call.code);
      call.trouble = call.code == CURLE_OPERATION_TIMEDOUT ? "no answer in time"
                     : call.too_large                      ? too_large_answer
                     : is_cut_off(call.code) ? "the connection ended before the answer"
                     : said.empty()          ? libcurl().curl_easy_strerror(call.code)
                                             : escaped(said);
      call.may_have_come = transfer.sent;
    }
  }
  if (interrupted) throw_interrupted();
}

void HttpClient::open_stream(const HttpAddress& to, const std::string& body) {
  close_stream();
  stream_ = begin(to, body, false, longest_connect);
}

void HttpClient::close_stream() { end(stream_); }

std::variant<std::string, HttpClient::StreamEnd> HttpClient::next_line(Deadline until,
                                                                       int cancel_fd) {
  while (true) {
    if (stream_ == nullptr) return StreamEnd::broken;
    work();
    if (auto line = stream_->next_line()) return std::move(*line);
    if (stream_->done) {
      // What is not etcd may answer with a line that does not end.
      std::string rest = stream_->answer.substr(stream_->taken);
      close_stream();
      if (rest.empty()) return StreamEnd::broken;
      return rest;
    }
    if (BootClock::now() >= until) return StreamEnd::due;
    if (!wait(until, cancel_fd)) return StreamEnd::interrupted;
  }
}

void HttpClient::close() {
  close_stream();
  multi_.reset();
}

}  // namespace dlock
