import { readFileSync, readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { brotliCompressSync, gzipSync } from 'node:zlib'
import react from '@vitejs/plugin-react'
import { type Plugin, defineConfig } from 'vite'

const assets = join(import.meta.dirname, 'dist/assets')

/** Stores scripts and styles compressed, too, so that the gateway never compresses them. */
const compress: Plugin = {
  name: 'compress',
  apply: 'build',
  // Runs only after everything was written, so that it hides no other error.
  writeBundle() {
    for (const name of readdirSync(assets)) {
      const content = readFileSync(join(assets, name))
      writeFileSync(join(assets, `${name}.br`), brotliCompressSync(content))
      writeFileSync(join(assets, `${name}.gz`), gzipSync(content, { level: 9 }))
    }
  },
}

/**
 * Builds the dashboard into `dist/`, which the gateway serves at /app. `npx vite gateway/web` serves
 * the sources instead, and sends every other path to a gateway at TOLLGATE_URL.
 */
export default defineConfig({
  root: import.meta.dirname,
  base: '/app/',
  plugins: [react(), compress],
  build: {
    outDir: 'dist',
    emptyOutDir: true,
    // The policy of the page allows no data: addresses.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
  },
  server: {
    proxy: { '^/(?!app/)': process.env['TOLLGATE_URL'] ?? 'http://localhost:8080' },
  },
})
