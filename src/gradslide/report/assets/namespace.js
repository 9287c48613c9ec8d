'use strict';
// The only global name. Every further file is a block that adds to it what others may use.
const gradslide = {};
