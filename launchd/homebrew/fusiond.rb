# A formula for a tap. It builds on the user's Mac: the Metal compiler comes with Xcode. Never run by us. A release adds `url` and `sha256`.
class Fusiond < Formula
  desc "Shares matrix products between GPU and CPU with measured ratios, for MLX"
  homepage "https://github.com/fusiond/fusiond"
  license any_of: ["MIT", "Apache-2.0"]
  head "https://github.com/fusiond/fusiond.git", branch: "main"

  depends_on "cmake" => :build
  depends_on "rust" => :build
  depends_on xcode: :build
  depends_on arch: :arm64
  depends_on :macos

  def install
    %w[daemon/fusiond daemon/worker client/fusionctl].each do |crate|
      system "cargo", "install", *std_cargo_args(path: crate)
    end
    # MLX looks for its Metal kernels beside the program that loads it.
    bin.install Dir["**/mlx.metallib"].first
    system bin/"fusionctl", "man", buildpath/"man"
    system bin/"fusiond", "man", buildpath/"man"
    system bin/"fusion-worker", "--man", buildpath/"man"
    man1.install Dir[buildpath/"man/*.1"]
    %w[fusionctl fusiond].each { |program| generate_completions_from_executable(bin/program, "completions") }
    generate_completions_from_executable(bin/"fusion-worker", "--completions")
  end

  # `fusionctl install --bin-dir #{HOMEBREW_PREFIX}/bin` registers the same programs with their socket instead, which a service block can't declare:
  # Homebrew wants <type>://<address>:<port>. Here the daemon binds its own.
  service do
    run [opt_bin/"fusiond", "--launchd"]
    # As after a crash, it is started again when it ends because its program was upgraded (exit code 79): Homebrew restarts nothing by itself.
    keep_alive successful_exit: false
    # What the worker measures must be what programs in a terminal get.
    process_type :interactive
    throttle_interval 10
    run_at_load true
    error_log_path var/"log/fusiond.crash.log"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/fusionctl --version")
    assert_match "qwen2.5-0.5b", shell_output("#{bin}/fusionctl models list")
  end
end
