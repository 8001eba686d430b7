// Redisson's RLock and RFencedLock. See tests/interop/README for the form of a driver.
import java.util.Arrays;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

public class Driver extends Rival {
  private final RLock lock;
  private final RLock other;
  private final long leaseMs;

  private Driver(RedissonClient client, String library, String key, long leaseMs) {
    lock = library.equals("redisson-fenced") ? client.getFencedLock(key) : client.getLock(key);
    other = client.getLock("warm-" + key);
    this.leaseMs = leaseMs;
  }

  @Override
  boolean acquire(long longestMs) throws Exception {
    return lock.tryLock(longestMs, leaseMs, TimeUnit.MILLISECONDS);
  }

  @Override
  boolean release() {
    try {
      lock.unlock();
      return true;
    } catch (IllegalMonitorStateException notOurs) {
      return false;
    }
  }

  @Override
  void warmUp() {
    other.lock(1, TimeUnit.SECONDS);
    other.unlock();
  }

  public static void main(String[] words) throws Exception {
    if (words[1].equals("version")) {
      System.out.println(Redisson.class.getPackage().getImplementationVersion());
      return;
    }
    Config config = new Config();
    config.useSingleServer().setAddress(words[2]).setConnectionMinimumIdleSize(2)
        .setConnectionPoolSize(4).setSubscriptionConnectionMinimumIdleSize(1);
    RedissonClient client = Redisson.create(config);
    Rival rival = new Driver(client, words[0], words[3], Long.parseLong(words[4]));
    int code = rival.run(Arrays.copyOfRange(words, 1, words.length));
    client.shutdown(0, 2, TimeUnit.SECONDS);
    System.exit(code);
  }
}
